//! The bytes of broadcasts: what was written is read again, anything else is refused.

use bytes::Bytes;
use itg_group::cast::log::{LogBody, LogMessage};
use itg_group::cast::thesis::Word;
use itg_group::cast::uniform::{EpochMessage, UniformMessage};
use itg_group::cast::{Body, CastDelivery, CastRequest, Entry, Value};
use itg_group::{Changes, Id, Member, Rules, View, ViewChange};
use itg_process::Slot;
use proptest::prelude::*;
use std::sync::Arc;

fn entry(slot: u32, seq: u64, kind: u8, payload: Vec<u8>) -> Entry {
    let origin = Member::new(Slot(slot), 3);
    let body = match kind {
        0 => Body::Message(payload.into()),
        1 => Body::Held(77),
        _ => {
            let changes = Changes::removal([Member::new(Slot(slot), 1)]);
            Body::Change(Arc::new(ViewChange { base: seq, changes, shape: None }), payload.into())
        }
    };
    Entry { id: Id { origin, seq }, lamport: seq / 2, body }
}

proptest! {
    #[test]
    fn messages_of_the_log_come_back(
        entries in prop::collection::vec((0u32..9, 0u64..99, 0u8..3, prop::collection::vec(any::<u8>(), 0..40)), 0..9),
        k: u64, r: u32, ts: u32, flag: bool, kind in 0u8..14,
    ) {
        let from = Member::new(Slot(r), k);
        let entries: Vec<_> = entries.into_iter().map(|(s, q, kind, p)| entry(s, q, kind, p)).collect();
        let ids = entries.iter().map(|entry| entry.id).collect();
        let value = Arc::new(Value { author: from, entries: entries.clone() });
        let what = match kind {
            0 => LogBody::Data(Arc::new(entries)),
            1 => LogBody::Est { k, r, ts, value },
            2 => LogBody::Prop { k, r, before: flag.then_some(ts), value },
            3 => LogBody::Ack { k, r, again: flag },
            4 => LogBody::Nack { k, r },
            5 => LogBody::Abort { k, r },
            6 => LogBody::Done { k, r },
            7 => LogBody::Dec { k, values: vec![value; 3] },
            8 => LogBody::Pull { k },
            9 => LogBody::Want { k, ids },
            10 => LogBody::Status { k, low: k / 2, stable: k / 3 },
            11 => LogBody::Gone { view: k },
            12 => {
                let bytes = vec![7; 40].into();
                LogBody::Piece { k, total: k / 2, sum: k / 5, offset: k / 3, bytes }
            }
            _ => LogBody::More { k, sum: k / 5, offset: k / 2 },
        };
        let say = LogMessage { from, what };
        let (ty, bytes) = say.encode();
        prop_assert_eq!(LogMessage::decode(ty, &bytes), Some(say));
        // No shorter and no longer bytes are the same message.
        for len in 0..bytes.len() {
            prop_assert_ne!(LogMessage::decode(ty, &bytes.slice(..len)).map(|s| s.encode().1), Some(bytes.clone()));
        }
        let longer = Bytes::from([&bytes[..], &[0]].concat());
        prop_assert_eq!(LogMessage::decode(ty, &longer), None);
    }

    #[test]
    fn any_bytes_are_survived(ty in 1390u32..1470, bytes: Vec<u8>) {
        let bytes = Bytes::from(bytes);
        if let Some(say) = LogMessage::decode(ty, &bytes) {
            let (ty, again) = say.encode();
            prop_assert_eq!(LogMessage::decode(ty, &again), Some(say));
        }
        if let Some(say) = UniformMessage::decode(ty, &bytes) {
            let (ty, again) = say.encode();
            prop_assert_eq!(UniformMessage::decode(ty, &again), Some(say));
        }
        if let Some(word) = Word::decode(ty, &bytes) {
            prop_assert_eq!(word.encode(), (ty, bytes));
        }
    }

    #[test]
    fn requests_and_deliveries_come_back(position: u64, text: Vec<u8>, n in 1u32..20) {
        let payload = Bytes::from(text);
        let view = View::first(n, Rules::default());
        let id = Id { origin: Member::new(Slot(n), position), seq: position / 3 };
        for tell in [
            CastDelivery::Message { position, id, payload: payload.clone() },
            CastDelivery::View { position, view: view.clone(), with: payload.clone() },
            CastDelivery::Checkpoint { position },
            CastDelivery::Install { position, view, state: payload.clone() },
            CastDelivery::Busy(payload.clone()),
            CastDelivery::Excluded { view: position },
            CastDelivery::Restored { position },
            CastDelivery::Expired(payload.clone()),
        ] {
            prop_assert_eq!(CastDelivery::from_message(&tell.clone().message(Slot(0))), Some(tell));
        }
        let change = ViewChange { base: position, changes: Changes::default(), shape: None };
        for ask in [
            CastRequest::Cast(payload.clone()),
            CastRequest::Change(change, payload.clone()),
            CastRequest::Join(Slot(n)),
            CastRequest::State(position, payload),
        ] {
            let message = ask.clone().message().expect("a message");
            prop_assert_eq!(CastRequest::from_message(message), Ok(ask));
        }
    }
}

#[test]
fn numbers_that_are_said_again_come_back() {
    let from = Member::new(Slot(3), 5);
    let list = (0..3).map(|seq| (Id { origin: from, seq }, seq * 7)).collect();
    let say = UniformMessage::Fast { from, epoch: 9, what: EpochMessage::StableOnes(list) };
    let (ty, bytes) = say.encode();
    assert_eq!((ty, bytes.len()), (1441, 12 + 8 + 4 + 3 * 28));
    assert_eq!(UniformMessage::decode(ty, &bytes), Some(say));
    for len in 0..bytes.len() {
        assert_eq!(UniformMessage::decode(ty, &bytes.slice(..len)), None, "{len} bytes");
    }
}

#[test]
fn bytes_lie_where_the_table_says() {
    let from = Member::new(Slot(0x0403_0201), 5);
    let (ty, bytes) = LogMessage { from, what: LogBody::Ack { k: 6, r: 7, again: true } }.encode();
    let want: [&[u8]; 5] =
        [&[1, 2, 3, 4], &5_u64.to_le_bytes(), &6_u64.to_le_bytes(), &7_u32.to_le_bytes(), &[1]];
    assert_eq!((ty, &bytes[..]), (1413, &want.concat()[..]));
}
