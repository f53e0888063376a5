//! The ranks of a job, and messages between them.

use mpi::collective::CommunicatorCollectives as _;
use mpi::environment::Universe;
use mpi::point_to_point::MatchedReceiveVec as _;
use mpi::request::{Request, StaticScope};
use mpi::topology::{Communicator as _, SimpleCommunicator};
use mpi::traits::{Destination as _, Root as _, Source as _};
use mpi::{Tag, Threading};

/// Kinds of messages.
pub mod tag {
    /// A frame of a network of layers.
    pub const FRAME: i32 = 1000;
    /// A block of a log.
    pub const BLOCK: i32 = 1500;
    /// The end of a log: [`crate::Done`].
    pub const DONE: i32 = 1501;
    /// Result of a rank's part of an experiment.
    pub const RESULT: i32 = 1600;
    /// Figures of what a rank has sent so far.
    pub const FIGURES: i32 = 1601;
    /// The end of all flows, for ranks that receive.
    pub const END: i32 = 1602;
}

/// Reason for which there is no job.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JobError {
    /// MPI was started before.
    #[error("MPI runs already in this program")]
    Twice,
    /// The library cannot live beside other threads.
    #[error("this MPI library allows no other threads: {0}")]
    Threads(String),
}

/// A job: all programs that the launcher started together.
pub struct Job {
    world: SimpleCommunicator,
    rank: u32,
    size: u32,
    // Ends MPI when it goes, after everything else.
    _universe: Universe,
}

impl std::fmt::Debug for Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Job").field("rank", &self.rank).field("size", &self.size).finish()
    }
}

/// A message that has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// The rank that sent it.
    pub from: u32,
    /// Its kind.
    pub tag: i32,
    /// Its content.
    pub bytes: Vec<u8>,
}

impl Job {
    /// Starts MPI on this thread, which alone talks to it from now on. Waits for all ranks.
    ///
    /// # Errors
    /// MPI runs already, or allows no threads.
    pub fn start() -> Result<Self, JobError> {
        let found = mpi::initialize_with_threading(Threading::Funneled);
        let (universe, threads) = found.ok_or(JobError::Twice)?;
        if threads < Threading::Funneled {
            return Err(JobError::Threads(library()));
        }
        let world = universe.world();
        let number = |value: i32| u32::try_from(value).unwrap_or_default();
        let (rank, size) = (number(world.rank()), number(world.size()));
        Ok(Self { world, rank, size, _universe: universe })
    }

    /// Number of this rank, from 0.
    #[must_use]
    pub const fn rank(&self) -> u32 {
        self.rank
    }

    /// Number of ranks.
    #[must_use]
    pub const fn size(&self) -> u32 {
        self.size
    }

    /// The MPI library and its version, in one line.
    #[must_use]
    pub fn library(&self) -> String {
        library()
    }

    /// Sends the bytes of rank 0 to all ranks and returns them; `said` matters at rank 0 only.
    #[must_use]
    pub fn broadcast(&self, said: Vec<u8>) -> Vec<u8> {
        let root = self.world.process_at_rank(0);
        let mut len = said.len() as u64;
        root.broadcast_into(&mut len);
        let mut bytes = said;
        bytes.resize(usize::try_from(len).unwrap_or(usize::MAX), 0);
        root.broadcast_into(&mut bytes[..]);
        bytes
    }

    /// The same number of bytes from every rank, in the order of ranks, on each rank.
    #[must_use]
    pub fn gather<const N: usize>(&self, own: [u8; N]) -> Vec<[u8; N]> {
        let mut all = vec![0; N * self.size as usize];
        self.world.all_gather_into(&own[..], &mut all[..]);
        all.as_chunks::<N>().0.to_vec()
    }

    /// Bytes of any number from every rank, in the order of ranks, on each rank.
    #[must_use]
    pub fn gather_bytes(&self, own: &[u8]) -> Vec<Vec<u8>> {
        let lens = self.gather((own.len() as u64).to_le_bytes()).into_iter();
        let lens: Vec<_> = lens
            .map(|len| usize::try_from(u64::from_le_bytes(len)).unwrap_or(usize::MAX))
            .collect();
        // All as long as the longest, or one byte: every rank knows which.
        let longest = lens.iter().copied().max().unwrap_or_default().max(1);
        let mut padded = own.to_vec();
        padded.resize(longest, 0);
        let mut all = vec![0; longest * self.size as usize];
        self.world.all_gather_into(&padded[..], &mut all[..]);
        all.chunks(longest).zip(lens).map(|(bytes, len)| bytes[..len].to_vec()).collect()
    }

    /// Waits until all ranks are here.
    pub fn barrier(&self) {
        self.world.barrier();
    }

    /// Waits until all ranks are here, and calls `meanwhile` until they are.
    pub fn barrier_while(&self, mut meanwhile: impl FnMut()) {
        let mut request = self.world.immediate_barrier();
        while let Err(still) = request.test() {
            request = still;
            meanwhile();
        }
    }

    /// Begins to send; the bytes belong to the send until it is done.
    ///
    /// # Panics
    /// If there is no such rank.
    pub fn send<P: AsRef<[u8]>>(&self, to: u32, tag: Tag, bytes: P) -> InFlight<P> {
        assert!(to < self.size, "rank {to} of {}", self.size);
        let bytes = Box::new(bytes);
        let slice: &[u8] = (*bytes).as_ref();
        // SAFETY: the box is neither moved out of, nor changed, nor dropped before the request is done:
        // `InFlight` gives it away only then, and waits for it when dropped.
        let slice: &'static [u8] =
            unsafe { std::slice::from_raw_parts(slice.as_ptr(), slice.len()) };
        let to = i32::try_from(to).unwrap_or_default();
        let request =
            self.world.process_at_rank(to).immediate_send_with_tag(StaticScope, slice, tag);
        #[cfg(debug_assertions)]
        let sum = crc32c::crc32c(slice);
        InFlight {
            request: Some(request),
            bytes: Some(bytes),
            #[cfg(debug_assertions)]
            sum,
        }
    }

    /// The next message that has come, if there is one: those of one rank and kind in their order.
    #[must_use]
    pub fn receive(&self) -> Option<Received> {
        let (message, status) = self.world.any_process().immediate_matched_probe()?;
        let (from, tag) = (u32::try_from(status.source_rank()).unwrap_or_default(), status.tag());
        let (bytes, _) = (message, status).matched_receive_vec();
        Some(Received { from, tag, bytes })
    }
}

fn library() -> String {
    let text = mpi::environment::library_version().unwrap_or_default();
    let line = text.lines().next().unwrap_or_default().trim_end_matches('\0');
    // MPICH puts a tab into it.
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Bytes that are being sent, and owned by the send.
pub struct InFlight<P: AsRef<[u8]>> {
    request: Option<Request<'static, [u8], StaticScope>>,
    bytes: Option<Box<P>>,
    /// Checked build: what they were when the send began.
    #[cfg(debug_assertions)]
    sum: u32,
}

impl<P: AsRef<[u8]>> std::fmt::Debug for InFlight<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InFlight").field("done", &self.request.is_none()).finish()
    }
}

impl<P: AsRef<[u8]>> InFlight<P> {
    /// The bytes again, once they are sent (`MPI_Test`); itself before that.
    ///
    /// # Errors
    /// The send is not done.
    ///
    /// # Panics
    /// In builds with debug assertions, if the bytes have changed meanwhile.
    pub fn test(mut self) -> Result<P, Self> {
        if let Some(request) = self.request.take()
            && let Err(still) = request.test()
        {
            self.request = Some(still);
            return Err(self);
        }
        #[cfg(debug_assertions)]
        if let Some(bytes) = &self.bytes {
            let sum = crc32c::crc32c((**bytes).as_ref());
            assert_eq!(self.sum, sum, "a buffer was written while it was being sent");
        }
        match self.bytes.take() {
            Some(bytes) => Ok(*bytes),
            None => unreachable!("the bytes go only with the end of the send, which takes `self`"),
        }
    }
}

impl<P: AsRef<[u8]>> Drop for InFlight<P> {
    fn drop(&mut self) {
        if let Some(request) = self.request.take() {
            request.wait_without_status();
        }
    }
}
