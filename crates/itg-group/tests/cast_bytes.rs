//! The bytes of broadcasts: what was written is read again, anything else is refused.

use bytes::Bytes;
use itg_group::cast::log::{Say, What};
use itg_group::cast::thesis::Word;
use itg_group::cast::{Ask, Body, Entry, Id, Tell, Value};
use itg_group::{Changes, Member, Rules, View, ViewChange};
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
        k: u64, r: u32, ts: u32, flag: bool, kind in 0u8..12,
    ) {
        let from = Member::new(Slot(r), k);
        let entries: Vec<_> = entries.into_iter().map(|(s, q, kind, p)| entry(s, q, kind, p)).collect();
        let ids = entries.iter().map(|entry| entry.id).collect();
        let value = Arc::new(Value { author: from, entries: entries.clone() });
        let what = match kind {
            0 => What::Data(Arc::new(entries)),
            1 => What::Est { k, r, ts, value },
            2 => What::Prop { k, r, before: flag.then_some(ts), value },
            3 => What::Ack { k, r, again: flag },
            4 => What::Nack { k, r },
            5 => What::Abort { k, r },
            6 => What::Done { k, r },
            7 => What::Dec { k, values: vec![value; 3] },
            8 => What::Pull { k },
            9 => What::Want { k, ids },
            10 => What::Status { k, low: k / 2, stable: k / 3 },
            _ => What::Gone { view: k },
        };
        let say = Say { from, what };
        let (ty, bytes) = say.encode();
        prop_assert_eq!(Say::decode(ty, &bytes), Some(say));
        // No shorter and no longer bytes are the same message.
        for len in 0..bytes.len() {
            prop_assert_ne!(Say::decode(ty, &bytes.slice(..len)).map(|s| s.encode().1), Some(bytes.clone()));
        }
        let longer = Bytes::from([&bytes[..], &[0]].concat());
        prop_assert_eq!(Say::decode(ty, &longer), None);
    }

    #[test]
    fn any_bytes_are_survived(ty in 1390u32..1470, bytes: Vec<u8>) {
        let bytes = Bytes::from(bytes);
        if let Some(say) = Say::decode(ty, &bytes) {
            let (ty, again) = say.encode();
            prop_assert_eq!(Say::decode(ty, &again), Some(say));
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
            Tell::Message { position, id, payload: payload.clone() },
            Tell::View { position, view: view.clone(), with: payload.clone() },
            Tell::Checkpoint { position },
            Tell::Install { position, view, state: payload.clone() },
            Tell::Busy(payload.clone()),
            Tell::Excluded { view: position },
        ] {
            prop_assert_eq!(Tell::from_message(&tell.clone().message(Slot(0))), Some(tell));
        }
        let change = ViewChange { base: position, changes: Changes::default(), shape: None };
        for ask in [
            Ask::Cast(payload.clone()),
            Ask::Change(change, payload.clone()),
            Ask::Join(Slot(n)),
            Ask::State(position, payload),
        ] {
            let message = ask.clone().message().expect("a message");
            prop_assert_eq!(Ask::from_message(message), Ok(ask));
        }
    }
}

#[test]
fn bytes_lie_where_the_table_says() {
    let from = Member::new(Slot(0x0403_0201), 5);
    let (ty, bytes) = Say { from, what: What::Ack { k: 6, r: 7, again: true } }.encode();
    let want: [&[u8]; 5] =
        [&[1, 2, 3, 4], &5_u64.to_le_bytes(), &6_u64.to_le_bytes(), &7_u32.to_le_bytes(), &[1]];
    assert_eq!((ty, &bytes[..]), (1413, &want.concat()[..]));
}
