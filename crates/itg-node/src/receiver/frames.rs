//! Frames of a device for the receiving thread, before the network stack.

use itg_engine::rx::Command;
use itg_socket::SocketError;
use itg_socket::xdp::{FrameInput, FrameInputOptions};

use super::shards::Shards;

/// Has the receiving thread take frames of a device; returns a description of how.
pub(super) fn open(
    options: &FrameInputOptions,
    threads: usize,
    rx: &Shards,
) -> Result<String, SocketError> {
    if threads > 1 {
        let what = format!("engine xdp: receiving on {}", options.interface);
        let why = "one thread takes its frames: leave out --shards, or choose --engine socket";
        return Err(SocketError::new(what, why));
    }
    let (input, queues) = FrameInput::open(options)?;
    let how = input.to_string();
    rx.first().ask(Command::Frames(Box::new(input), queues));
    Ok(how)
}
