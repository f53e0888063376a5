//! Clusters of objects that refer to each other.
//!
//! A [`Cluster`] is always valid: it starts empty and grows by values that are checked when they are
//! stored, or it was made from bytes that have been checked as a whole ([`Received::validate`]). So
//! reading never fails, and there is no other type for a cluster that has been validated.
//!
//! Costs: an object is its fields and 8 bytes; reading one is a bit test, a comparison, and for types
//! with `bool` or enum fields zerocopy's look at these fields. Sending is a header of 64 bytes and
//! the body where it lies.

use std::io::{self, IoSlice, Write};
use std::marker::PhantomData;

use crate::clusters::bits::Bits;
use crate::clusters::memory::{Buffer, Fixed, Memory};
use crate::clusters::object::{
    COUNT_LEN, Member, OBJECT_HEADER_LEN, Object, ObjectHeader, Refs, Root, Schema, contents,
};
use crate::clusters::plain::Plain;
use crate::clusters::received::Received;
use crate::clusters::reference::{FixedAddress, Iso, Kind, Ref, Reloc};
use crate::clusters::refusal::{Refusal, StoreError};
use crate::clusters::validate::{check_body, check_header};
use itg_arena::{FLAG_CRC, HEADER_LEN, Header};

/// Objects of the schema `S`, with references of the kind `K`, in the memory `M`.
#[derive(Clone, Debug)]
pub struct Cluster<S, K: Kind, M> {
    memory: M,
    /// Bytes in use, header included; a multiple of 8.
    used: usize,
    /// Starts of the objects, by type.
    starts: Vec<Bits>,
    objects: u32,
    /// Offset of the root, 0 for none.
    root: usize,
    place: FixedAddress,
    tag: u64,
    checksum: bool,
    schema: PhantomData<(S, K)>,
}

/// A cluster that is valid wherever it lies, in memory of its own.
pub type ClusterReloc<S> = Cluster<S, Reloc, Buffer>;

/// A cluster at a fixed address, in the memory that is mapped there.
pub type ClusterIso<S, M> = Cluster<S, Iso, Fixed<M>>;

impl<S: Schema<Reloc>> Cluster<S, Reloc, Buffer> {
    /// An empty cluster with room for `bytes` bytes, which grows when these are used up.
    #[must_use]
    pub fn with_capacity(bytes: usize) -> Self {
        Self::empty(Buffer::with_capacity(bytes.max(HEADER_LEN)), FixedAddress::default())
    }

    /// Reads a cluster of at most `limit` bytes: its header, then, if that is good, its body straight
    /// into place. What came is still to be validated.
    ///
    /// # Errors
    /// [`RecvError::Io`] from the reader, [`RecvError::Refused`] for a header that is not good.
    pub fn recv(
        reader: &mut impl io::Read,
        limit: usize,
    ) -> Result<Received<S, Reloc, Buffer>, RecvError> {
        Self::recv_in(Buffer::default(), reader, limit)
    }

    /// [`recv`](Self::recv) into memory that was in use before: that of the last cluster from
    /// [`into_memory`](Self::into_memory), for programs that receive many clusters.
    ///
    /// # Errors
    /// As [`recv`](Self::recv).
    pub fn recv_in(
        memory: Buffer,
        reader: &mut impl io::Read,
        limit: usize,
    ) -> Result<Received<S, Reloc, Buffer>, RecvError> {
        let mut header = [0; HEADER_LEN];
        reader.read_exact(&mut header)?;
        let mut received = Received::accept(&header, memory, FixedAddress::default(), limit)?;
        reader.read_exact(received.body_mut())?;
        Ok(received)
    }
}

impl<S: Schema<Iso>, M: AsRef<[u8]> + AsMut<[u8]>> Cluster<S, Iso, Fixed<M>> {
    /// An empty cluster in `memory`, which is to be mapped at `place.base` if its references are to
    /// be addresses of this process, too.
    ///
    /// # Panics
    /// If the address is 0, not a multiple of 8 or beyond the first half of all addresses, or the
    /// memory is shorter than a header: bugs of the caller.
    pub fn new(memory: M, place: FixedAddress) -> Self {
        assert_place(place);
        assert!(memory.as_ref().len() >= HEADER_LEN, "no room for a header");
        Self::empty(Fixed(memory), place)
    }

    /// Receives the next contents of this cluster, of at most `limit` bytes, in place of its
    /// present ones, and validates them. It needs exclusive access to the cluster.
    ///
    /// # Errors
    /// As [`ClusterReloc::recv`], and for a body that is refused. A header that is refused leaves the
    /// present contents; a body that is refused or breaks off leaves the cluster empty.
    pub fn recv(&mut self, reader: &mut impl io::Read, limit: usize) -> Result<(), RecvError> {
        let mut bytes = [0; HEADER_LEN];
        reader.read_exact(&mut bytes)?;
        let header = check_header::<S, Iso>(&bytes, self.place, limit)?;
        let len = room_for(&mut self.memory, &header)?;
        self.clear();
        let memory = &mut self.memory.as_mut()[..len];
        memory[..HEADER_LEN].copy_from_slice(&bytes);
        reader.read_exact(&mut memory[HEADER_LEN..])?;
        let starts = check_body::<S, Iso>(memory, &header, self.place.base)?;
        self.adopt(&header, len, starts);
        Ok(())
    }
}

impl<'a, S: Schema<Reloc>> Cluster<S, Reloc, &'a [u8]> {
    /// Checks bytes that lie somewhere else, a mapped file for example, and reads them there. They
    /// have to start at a multiple of 8 and end with the cluster.
    ///
    /// # Errors
    /// The first thing that is wrong. Never panics.
    pub fn check(bytes: &'a [u8], limit: usize) -> Result<Self, Refusal> {
        Self::check_at(bytes, FixedAddress::default(), limit)
    }
}

impl<'a, S: Schema<K>, K: Kind> Cluster<S, K, &'a [u8]> {
    /// [`check`](Cluster::check) for either kind: a cluster of fixed address has to say that it
    /// belongs to `place`.
    ///
    /// # Errors
    /// The first thing that is wrong. Never panics.
    pub fn check_at(bytes: &'a [u8], place: FixedAddress, limit: usize) -> Result<Self, Refusal> {
        let header = check_header::<S, K>(bytes, place, limit)?;
        let len = cut_off(&header, bytes.len())?;
        if len != bytes.len() {
            return Err(Refusal::Trailing { len: header.total_len, have: bytes.len() });
        }
        Self::from_checked(bytes, &header, place)
    }
}

impl<S: Schema<K>, K: Kind, M: AsRef<[u8]>> Cluster<S, K, M> {
    /// Checks the cluster at the start of memory that is there already, shared with another process
    /// for example.
    ///
    /// # Errors
    /// The first thing that is wrong. Never panics.
    pub fn in_place(memory: M, place: FixedAddress, limit: usize) -> Result<Self, Refusal> {
        let header = check_header::<S, K>(memory.as_ref(), place, limit)?;
        Self::from_checked(memory, &header, place)
    }

    /// A cluster in memory that begins with a header that is good.
    pub(crate) fn from_checked(
        memory: M,
        header: &Header,
        place: FixedAddress,
    ) -> Result<Self, Refusal> {
        let len = cut_off(header, memory.as_ref().len())?;
        let starts = check_body::<S, K>(&memory.as_ref()[..len], header, place.base)?;
        let mut cluster = Self::empty(memory, place);
        cluster.adopt(header, len, starts);
        Ok(cluster)
    }

    fn empty(memory: M, place: FixedAddress) -> Self {
        Self {
            memory,
            used: HEADER_LEN,
            starts: vec![Bits::empty(); S::TYPES.len()],
            objects: 0,
            root: 0,
            place,
            tag: 0,
            checksum: false,
            schema: PhantomData,
        }
    }

    fn adopt(&mut self, header: &Header, len: usize, starts: Vec<Bits>) {
        self.used = len;
        self.starts = starts;
        self.objects = header.objects;
        self.root = usize::try_from(header.root).expect("a root that was found");
        self.tag = header.tag;
        self.checksum = header.flags & FLAG_CRC != 0;
    }

    #[inline]
    fn used_bytes(&self) -> &[u8] {
        &self.memory.as_ref()[..self.used]
    }

    #[inline]
    fn refs(&self) -> Refs<'_, K> {
        Refs::new::<S>(&self.starts, self.place.base, self.used)
    }

    #[inline]
    fn find<T: Member<S, K> + ?Sized>(&self, reference: Ref<T, K>) -> Option<usize> {
        if reference.is_null() {
            return None;
        }
        match self.refs().find(reference, T::ID) {
            Some(offset) => Some(offset),
            None => self.foreign(reference),
        }
    }

    #[cold]
    fn foreign<T: Member<S, K> + ?Sized>(&self, reference: Ref<T, K>) -> ! {
        panic!("a reference of another cluster was used: {}", self.refs().fault(reference, T::NAME))
    }

    #[inline]
    fn view<T: Member<S, K> + ?Sized>(&self, offset: usize) -> &T {
        contents::<S, K, T>(self.used_bytes(), offset)
            .and_then(T::view)
            .expect("objects are checked when they enter the cluster")
    }

    /// The object that a reference leads to; none for null.
    ///
    /// # Panics
    /// If the reference comes from another cluster and leads to no such object here: a bug of the
    /// caller. References that are found in a cluster are good for it.
    #[inline]
    #[must_use]
    pub fn get<T: Member<S, K> + ?Sized>(&self, reference: Ref<T, K>) -> Option<&T> {
        self.find(reference).map(|offset| self.view(offset))
    }

    /// The root; none when there is none or it is of another type.
    #[must_use]
    pub fn root<T: Root<S, K> + ?Sized>(&self) -> Option<&T> {
        self.get(self.root_ref::<T>())
    }

    /// The reference to the root; null when there is none or it is of another type.
    #[must_use]
    pub fn root_ref<T: Root<S, K> + ?Sized>(&self) -> Ref<T, K> {
        if self.root == 0 {
            return Ref::null();
        }
        let reference = Ref::from_word(K::word(self.root, self.place.base));
        if self.refs().find(reference, T::ID).is_some() { reference } else { Ref::null() }
    }

    /// All objects of one type, in the order in which they were made: a way through a graph that
    /// needs neither recursion nor marks.
    pub fn iter<T: Member<S, K> + ?Sized>(&self) -> impl Iterator<Item = (Ref<T, K>, &T)> {
        let starts = self.starts[usize::from(T::ID)].iter();
        starts.map(|units| {
            (Ref::from_word(K::word(units * 8, self.place.base)), self.view(units * 8))
        })
    }

    /// Number of objects.
    #[must_use]
    pub const fn objects(&self) -> u32 {
        self.objects
    }

    /// Length in bytes, header included.
    #[must_use]
    pub const fn total_len(&self) -> usize {
        self.used
    }

    /// The user's tag; the generation of the contents for clusters of fixed address.
    #[must_use]
    pub const fn tag(&self) -> u64 {
        self.tag
    }

    /// Sets the tag.
    pub const fn set_tag(&mut self, tag: u64) {
        self.tag = tag;
    }

    /// Turns a CRC-32C of the body in the header on or off; it costs a pass over the body on either
    /// side. Off by default.
    pub const fn set_checksum(&mut self, checksum: bool) {
        self.checksum = checksum;
    }

    /// Its address, origin and rank; zeros for a relocatable cluster.
    #[must_use]
    pub const fn place(&self) -> FixedAddress {
        self.place
    }

    /// The header as it has to be sent or stored now.
    #[must_use]
    pub fn header(&self) -> Header {
        Header {
            kind: K::NUMBER,
            flags: if self.checksum { FLAG_CRC } else { 0 },
            schema: S::HASH,
            total_len: self.used as u64,
            origin: self.place.origin,
            rank: self.place.rank,
            base: self.place.base,
            root: self.root as u64,
            objects: self.objects,
            crc: if self.checksum { crc32c::crc32c(self.body()) } else { 0 },
            tag: self.tag,
        }
    }

    /// Everything behind the header, where it lies.
    #[must_use]
    pub fn body(&self) -> &[u8] {
        &self.used_bytes()[HEADER_LEN..]
    }

    /// Writes the cluster: header and body in one vectored write, the body from where it lies.
    ///
    /// # Errors
    /// From the writer.
    pub fn send(&self, writer: &mut impl Write) -> io::Result<()> {
        let header = self.header().emit();
        let mut slices = [IoSlice::new(&header), IoSlice::new(self.body())];
        let mut left = &mut slices[..];
        while !left.is_empty() {
            match writer.write_vectored(left) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => IoSlice::advance_slices(&mut left, written),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The memory, without the cluster. Its header is there after [`seal`](Self::seal) only.
    pub fn into_memory(self) -> M {
        self.memory
    }
}

impl<S: Schema<K>, K: Kind, M: AsRef<[u8]> + AsMut<[u8]>> Cluster<S, K, M> {
    /// Writes the header in front of the body and returns the whole cluster as bytes: what a file or
    /// another process that shares the memory has to see.
    pub fn seal(&mut self) -> &[u8] {
        let header = self.header().emit();
        self.memory.as_mut()[..HEADER_LEN].copy_from_slice(&header);
        self.used_bytes()
    }

    /// Forgets all objects.
    pub fn clear(&mut self) {
        self.used = HEADER_LEN;
        self.starts.fill(Bits::empty());
        self.objects = 0;
        self.root = 0;
    }

    /// Makes an object the root.
    ///
    /// # Panics
    /// As [`get`](Self::get) for a reference of another cluster.
    pub fn set_root<T: Root<S, K> + ?Sized>(&mut self, reference: Ref<T, K>) {
        self.root = self.find(reference).unwrap_or(0);
    }

    /// Puts a value in the place of another one.
    ///
    /// # Errors
    /// [`StoreError::Fault`] for a value out of bounds, [`StoreError::Null`] for a null reference;
    /// nothing is changed then.
    ///
    /// # Panics
    /// As [`get`](Self::get) for a reference of another cluster.
    pub fn set<T: Member<S, K> + Plain<S, K>>(
        &mut self,
        reference: Ref<T, K>,
        value: T,
    ) -> Result<(), StoreError> {
        let Some(offset) = self.find(reference) else {
            return Err(StoreError::Null { name: <T as Object<S, K>>::NAME });
        };
        self.store(offset + OBJECT_HEADER_LEN, &value)
    }

    /// Changes a value: [`set`](Self::set) with what `change` makes of the present one.
    ///
    /// # Errors
    /// As [`set`](Self::set).
    ///
    /// # Panics
    /// As [`get`](Self::get) for a reference of another cluster.
    pub fn update<T: Member<S, K> + Plain<S, K>>(
        &mut self,
        reference: Ref<T, K>,
        change: impl FnOnce(&mut T),
    ) -> Result<(), StoreError> {
        let Some(value) = self.get(reference) else {
            return Err(StoreError::Null { name: <T as Object<S, K>>::NAME });
        };
        let mut value = *value;
        change(&mut value);
        self.set(reference, value)
    }

    /// Puts a value in the place of an element of an array.
    ///
    /// # Errors
    /// As [`set`](Self::set), and [`StoreError::Index`].
    ///
    /// # Panics
    /// As [`get`](Self::get) for a reference of another cluster.
    pub fn set_element<T: Plain<S, K>>(
        &mut self,
        reference: Ref<[T], K>,
        index: usize,
        value: T,
    ) -> Result<(), StoreError>
    where
        [T]: Member<S, K>,
    {
        let Some(offset) = self.find(reference) else {
            return Err(StoreError::Null { name: <[T] as Object<S, K>>::NAME });
        };
        let len = self.view::<[T]>(offset).len();
        if index >= len {
            return Err(StoreError::Index { index, len });
        }
        let elements = offset + OBJECT_HEADER_LEN + COUNT_LEN;
        self.store(elements + index * size_of::<T>(), &value)
    }

    /// Checks a value and writes it over the one at `offset`.
    fn store<T: Plain<S, K>>(&mut self, offset: usize, value: &T) -> Result<(), StoreError> {
        self.check_value(value)?;
        value.store(&mut self.memory.as_mut()[offset..offset + size_of::<T>()]);
        Ok(())
    }

    fn check_value<T: Plain<S, K>>(&self, value: &T) -> Result<(), StoreError> {
        value.check(&self.refs()).map_err(|fault| StoreError::Fault { name: T::NAME, fault })
    }
}

impl<S: Schema<K>, K: Kind, M: Memory> Cluster<S, K, M> {
    /// Makes a new object.
    ///
    /// # Errors
    /// [`StoreError::Full`] without room, [`StoreError::Fault`] for a value out of bounds or with a
    /// reference of another cluster; the cluster is as before then.
    pub fn alloc<T: Member<S, K> + Plain<S, K>>(
        &mut self,
        value: T,
    ) -> Result<Ref<T, K>, StoreError> {
        self.check_value(&value)?;
        let (reference, contents) = self.append::<T>(size_of::<T>())?;
        value.store(contents);
        Ok(reference)
    }

    /// Makes a new array.
    ///
    /// # Errors
    /// As [`alloc`](Self::alloc).
    pub fn alloc_array<T: Plain<S, K>>(&mut self, values: &[T]) -> Result<Ref<[T], K>, StoreError>
    where
        [T]: Member<S, K>,
    {
        values.iter().try_for_each(|value| self.check_value(value))?;
        let (reference, contents) = self.append::<[T]>(COUNT_LEN + size_of_val(values))?;
        let (count, elements) = contents.split_at_mut(COUNT_LEN);
        count.copy_from_slice(&(values.len() as u64).to_le_bytes());
        for (value, out) in values.iter().zip(elements.chunks_exact_mut(size_of::<T>())) {
            value.store(out);
        }
        Ok(reference)
    }

    /// Makes a new string.
    ///
    /// # Errors
    /// [`StoreError::Full`] without room.
    pub fn alloc_str(&mut self, text: &str) -> Result<Ref<str, K>, StoreError>
    where
        str: Member<S, K>,
    {
        let (reference, contents) = self.append::<str>(COUNT_LEN + text.len())?;
        let (count, bytes) = contents.split_at_mut(COUNT_LEN);
        count.copy_from_slice(&(text.len() as u64).to_le_bytes());
        bytes.copy_from_slice(text.as_bytes());
        Ok(reference)
    }

    /// A new object with contents of `len` zero bytes.
    fn append<T: Member<S, K> + ?Sized>(
        &mut self,
        len: usize,
    ) -> Result<(Ref<T, K>, &mut [u8]), StoreError> {
        let offset = self.used;
        let need = (OBJECT_HEADER_LEN + len).next_multiple_of(8);
        let end = offset + need;
        let room = end as u64 <= K::REACH && self.objects < u32::MAX && self.memory.grow(end);
        let (true, Ok(units)) = (room, u32::try_from(need / 8)) else {
            let limit = K::REACH.min(self.memory.as_ref().len() as u64);
            return Err(StoreError::Full { need, used: offset, limit });
        };
        self.used = end;
        self.objects += 1;
        self.starts[usize::from(T::ID)].insert(offset / 8);
        let object = &mut self.memory.as_mut()[offset..end];
        let (header, contents) = object.split_at_mut(OBJECT_HEADER_LEN);
        header.copy_from_slice(&ObjectHeader { id: T::ID, flags: 0, units }.emit());
        contents.fill(0);
        Ok((Ref::from_word(K::word(offset, self.place.base)), &mut contents[..len]))
    }
}

/// Reason why no cluster was received.
#[derive(Debug, thiserror::Error)]
pub enum RecvError {
    /// The reader failed or ended.
    #[error("the cluster could not be read: {0}")]
    Io(#[from] io::Error),
    /// The bytes received are no cluster of this schema.
    #[error("the cluster was refused: {0}")]
    Refused(#[from] Refusal),
}

/// Makes room for the cluster of `header` and returns its length.
pub(crate) fn room_for(memory: &mut impl Memory, header: &Header) -> Result<usize, Refusal> {
    match usize::try_from(header.total_len) {
        Ok(len) if memory.grow(len) => Ok(len),
        _ => Err(Refusal::Memory { len: header.total_len, have: memory.as_ref().len() }),
    }
}

fn cut_off(header: &Header, have: usize) -> Result<usize, Refusal> {
    let need = header.total_len;
    match usize::try_from(need) {
        Ok(len) if len <= have => Ok(len),
        _ => Err(itg_arena::ClusterError::CutOff { need, have }.into()),
    }
}

pub(crate) fn assert_place(place: FixedAddress) {
    let base = place.base;
    let good = base != 0 && base.is_multiple_of(8) && base < 1 << 63;
    assert!(good, "{base:#x} is no address for a cluster");
}
