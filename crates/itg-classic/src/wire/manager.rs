//! The manager's datagrams: a request is the text of a line, answered when it is read and when its
//! flow has ended.

/// Longest request in bytes.
pub const REQUEST_MAX: usize = 1457;

/// The first answer, of three bytes more than the request. What the type and the length do not
/// cover is the request's own bytes, as with D-ITG.
#[must_use]
pub fn reply_started(request: &[u8]) -> Vec<u8> {
    let request = &request[..request.len().min(REQUEST_MAX)];
    let len = request.len() + 3;
    // The answer is written over the request: type, length, then the text from byte 8 on.
    let mut reply = request.to_vec();
    reply.resize(len.max(8), 0);
    reply[0] = 1;
    reply[2..4].copy_from_slice(&u16::try_from(request.len()).unwrap_or(u16::MAX).to_le_bytes());
    reply.truncate(8);
    reply.extend_from_slice(request);
    reply.truncate(len);
    reply
}

/// The second answer, of eight bytes more than the request.
#[must_use]
pub fn reply_ended(request: &[u8]) -> Vec<u8> {
    let request = &request[..request.len().min(REQUEST_MAX)];
    let len = u32::try_from(request.len()).unwrap_or(u32::MAX);
    let mut reply = 2_u32.to_le_bytes().to_vec();
    reply.extend_from_slice(&len.to_le_bytes());
    reply.extend_from_slice(request);
    reply
}

/// What an answer tells a manager: whether the flow has ended, and the text. D-ITG's own manager
/// misreads the layout and crashes.
#[must_use]
pub fn reply_text(reply: &[u8]) -> Option<(bool, &[u8])> {
    let (head, text) = reply.split_at_checked(8)?;
    match head[0] {
        1 => Some((false, text)),
        2 => Some((true, text)),
        _ => None,
    }
}
