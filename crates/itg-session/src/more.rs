//! Contents of messages that version 1 of the protocol does not have: a JSON object behind the bytes of the message.
//!
//! It is sent to peers alone that offer to take it ([`offer::MORE`](crate::offer::MORE)): older ones take bytes behind a
//! message for damage. A reader ignores names that it does not know, so that each release may add some; what a
//! peer *must* know is not put here without an offer of its own. A message without anything more is what it was.

use std::collections::BTreeMap;

use itg_core::flow::FlowSpec;
use itg_core::settings::{Handling, Shape};
use serde::{Deserialize, Serialize};

use crate::message::{ArrivalAccount, Message, MoreCounts};

/// The object.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct More {
    /// Of flows that are to be opened, by their places in the message, from 0.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    handling: BTreeMap<usize, Handling>,
    /// Of flows that the receiver of the message is to send, in the same way.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    shape: BTreeMap<usize, Shape>,
    /// Of the flows of a `Pong`, in their order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    arrived: Vec<ArrivalAccount>,
    /// Of the flow of a `FlowCounted`.
    #[serde(skip_serializing_if = "Option::is_none")]
    counted: Option<MoreCounts>,
}

/// The flows that a message describes.
fn flows(message: &mut Message) -> &mut [FlowSpec] {
    match message {
        Message::Open { flows } | Message::Turn { flows } => flows,
        _ => &mut [],
    }
}

/// The text behind a message, if there is more to it than version 1 has.
pub(crate) fn of(message: &Message) -> Option<String> {
    let more = match message {
        Message::Open { flows } | Message::Turn { flows } => {
            let all = flows.iter().map(|spec| spec.handling.clone()).enumerate();
            let handling = all.filter(|(_, handling)| !handling.is_default()).collect();
            let all = flows.iter().map(|spec| spec.shape.clone()).enumerate();
            let shape = all.filter(|(_, shape)| !shape.is_default()).collect();
            More { handling, shape, ..More::default() }
        }
        // Of all flows, or of none.
        Message::Pong { arrived, .. } => {
            let accounts = arrived.iter().map(|flow| flow.account).collect::<Option<_>>();
            More { arrived: accounts.unwrap_or_default(), ..More::default() }
        }
        Message::FlowCounted(counts) => {
            let counted = Some(counts.more).filter(|more| *more != MoreCounts::default());
            More { counted, ..More::default() }
        }
        _ => return None,
    };
    let text = serde_json::to_string(&more).expect("numbers and texts");
    (text != "{}").then_some(text)
}

/// Puts into a message what its text says.
///
/// # Errors
/// A text that is no such object.
pub(crate) fn put(message: &mut Message, text: &str) -> Result<(), String> {
    let mut more: More = serde_json::from_str(text).map_err(|error| error.to_string())?;
    for (place, spec) in flows(message).iter_mut().enumerate() {
        spec.handling = more.handling.remove(&place).unwrap_or_default();
        spec.shape = more.shape.remove(&place).unwrap_or_default();
    }
    if let Message::FlowCounted(counts) = message {
        counts.more = more.counted.unwrap_or_default();
    }
    if let Message::Pong { arrived, .. } = message
        && arrived.len() == more.arrived.len()
    {
        for (flow, account) in arrived.iter_mut().zip(more.arrived) {
            flow.account = Some(account);
        }
    }
    Ok(())
}
