//! L-10: logs that were cut, flipped, put out of order, doubled or thinned out. No panic, every packet
//! whose block is there counts once, and what is missing is said.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

use itg_record::{Record, SentPacket, Side};
use itg_stats::report::{LogDamage, damage_lines};
use itg_stats::{Analysis, LogError, Options};
use itg_testkit::logs::{EPOCH, TestLog, blocks, compacted, end, plan, spec};
use proptest::prelude::*;

/// Packets of the log.
const PACKETS: u64 = 200;

/// A sender's log of one flow, in blocks of 16 records.
fn log() -> Vec<u8> {
    let spec = spec(1, "constant(1ms)", "uniform(64,1400)", PACKETS);
    let mut log = TestLog::new(Side::Sender, "here");
    log.flow(0, &spec, ["here", "there"]);
    let sent = |packet: itg_core::schedule::Departure| {
        let sent_ns = EPOCH + packet.due_ns + 5_000;
        Record::sent(SentPacket {
            flow: 0,
            seq: packet.seq,
            size: packet.size,
            planned_ns: packet.due_ns,
            sent_ns,
        })
    };
    log.records(plan(&spec).into_iter().map(sent));
    log.end_flow(end(0));
    log.finish()
}

/// Damage to a log.
#[derive(Clone, Debug)]
enum Harm {
    /// A block goes to another place.
    Move(prop::sample::Index, prop::sample::Index),
    /// A block comes again somewhere.
    Double(prop::sample::Index, prop::sample::Index),
    Lose(prop::sample::Index),
    /// One bit of a block changes, but not in its label.
    Flip(prop::sample::Index, prop::sample::Index),
}

fn harms() -> impl Strategy<Value = Vec<Harm>> {
    use any as a;
    let harm = prop_oneof![
        4 => (a::<prop::sample::Index>(), a::<prop::sample::Index>()).prop_map(|(a, b)| Harm::Move(a, b)),
        2 => (a::<prop::sample::Index>(), a::<prop::sample::Index>()).prop_map(|(a, b)| Harm::Double(a, b)),
        1 => a::<prop::sample::Index>().prop_map(Harm::Lose),
        2 => (a::<prop::sample::Index>(), a::<prop::sample::Index>()).prop_map(|(a, b)| Harm::Flip(a, b)),
    ];
    prop::collection::vec(harm, 0..10)
}

/// A block of the log: its number, what it was, what it is.
#[derive(Clone)]
struct Piece {
    no: usize,
    good: Vec<u8>,
    is: Vec<u8>,
}

impl Piece {
    /// Records in it, when it is good.
    fn records(&self) -> u64 {
        let word = |at: usize| u32::from_le_bytes(self.good[at..at + 4].try_into().unwrap());
        // Notes hold one object, and text.
        if self.good[64] == b'{' { 0 } else { u64::from(word(48)) }
    }
}

fn harm(pieces: &mut Vec<Piece>, harm: &Harm) {
    if pieces.is_empty() {
        return;
    }
    match harm {
        Harm::Move(from, to) => {
            let piece = pieces.remove(from.index(pieces.len()));
            let to = to.index(pieces.len() + 1);
            pieces.insert(to, piece);
        }
        Harm::Double(from, to) => {
            let piece = pieces[from.index(pieces.len())].clone();
            pieces.insert(to.index(pieces.len() + 1), piece);
        }
        Harm::Lose(which) => {
            pieces.remove(which.index(pieces.len()));
        }
        Harm::Flip(which, bit) => {
            let count = pieces.len();
            let bytes = &mut pieces[which.index(count)].is;
            let bit = bit.index(bytes.len() * 8);
            if !(56..64).contains(&(bit / 8)) {
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn l_10_the_account_of_a_harmed_log_is_exact(
        harms in harms(),
        keep in prop_oneof![3 => Just(1.0), 1 => 0.0..1.0],
        columns: bool,
    ) {
        let whole = if columns { compacted(&log()) } else { log() };
        let piece = |(no, bytes): (usize, &[u8])| {
            Piece { no, good: bytes.to_vec(), is: bytes.to_vec() }
        };
        let mut pieces: Vec<Piece> = blocks(&whole).into_iter().enumerate().map(piece).collect();
        let count = pieces.len();
        harms.iter().for_each(|one| harm(&mut pieces, one));
        let mut bytes: Vec<u8> = pieces.iter().flat_map(|piece| piece.is.clone()).collect();
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss,
            reason = "a share of a small number")]
        bytes.truncate((bytes.len() as f64 * keep) as usize);

        // What is there: blocks that are as they were, in the part that was kept.
        let mut at = 0;
        let mut there: Vec<Option<&Piece>> = vec![None; count];
        let (mut displaced, mut doubled, mut last) = (false, false, 0);
        let mut another = false;
        for piece in &pieces {
            at += piece.is.len();
            if at > bytes.len() || piece.is != piece.good {
                continue;
            }
            doubled |= there[piece.no].is_some();
            displaced |= there[piece.no].is_none() && piece.no < last;
            last = piece.no;
            // A log's first block behind its end is taken for another log (docs/formats.md).
            another |= piece.no == 0 && there[0].is_none() && there[count - 1].is_some();
            there[piece.no] = Some(piece);
        }
        prop_assume!(!another);
        let packets: u64 = there.iter().flatten().map(|piece| piece.records()).sum();
        let ended = there[count - 1].is_some();
        let gaps = there.iter().rposition(Option::is_some)
            .map_or(0, |last| there[..last].iter().filter(|piece| piece.is_none()).count());

        let mut analysis = Analysis::new(Options::default());
        match analysis.add_log(&bytes, "log") {
            Err(LogError::Empty { .. }) => {
                prop_assert!(bytes.is_empty());
                return Ok(());
            }
            Err(error) => {
                prop_assert!(there.iter().all(Option::is_none), "{}", error);
                return Ok(());
            }
            Ok(()) => {}
        }
        let report = analysis.finish();
        let counted: u64 = report.flows.iter().map(|flow| flow.metrics.packets).sum();
        prop_assert_eq!(counted, packets);
        let reasons: Vec<&str> = report.damage.iter().map(|damage| damage.reason.as_str()).collect();
        let says = |words: &str| reasons.iter().any(|reason| reason.contains(words));
        prop_assert_eq!(says("missing"), gaps > 0, "{:?}", &reasons);
        prop_assert_eq!(says("once more: left out"), doubled, "{:?}", &reasons);
        let totals = format!("log 1 holds {packets} records, its end note counts {PACKETS}");
        prop_assert_eq!(says(&totals), ended && packets < PACKETS, "{:?}", &reasons);
        let noted = |words: &str| report.notices.iter().any(|notice| notice.contains(words));
        prop_assert_eq!(noted("is not closed"), !ended, "{:?}", &report.notices);
        prop_assert_eq!(noted("out of order"), displaced, "{:?}", &report.notices);
        let harmed = pieces.iter().any(|piece| piece.is != piece.good) || at > bytes.len();
        if !harmed && gaps == 0 && !doubled {
            prop_assert!(reasons.is_empty(), "order alone is no damage: {:?}", &reasons);
        }
        if packets == PACKETS {
            let seqs: Vec<u64> = analysis.packets().iter().map(|line| line.seq).collect();
            prop_assert!(seqs.iter().copied().eq(0..PACKETS), "each packet once, in order");
        }
    }

    #[test]
    fn l_10_any_bytes_at_all_are_decoded_without_a_panic(
        cut in any::<prop::sample::Index>(),
        patches in prop::collection::vec((any::<prop::sample::Index>(), any::<u64>()), 0..8),
        columns: bool,
    ) {
        let mut bytes = if columns { compacted(&log()) } else { log() };
        for (at, word) in patches {
            let at = at.index(bytes.len() - 8);
            bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
        }
        let bytes = &bytes[cut.index(bytes.len())..];
        let mut analysis = Analysis::new(Options { interval_ns: Some(1_000_000_000), ..Options::default() });
        if analysis.add_log(bytes, "log").is_ok() {
            let report = analysis.finish();
            let counted: u64 = report.flows.iter().map(|flow| flow.metrics.packets).sum();
            prop_assert!(counted <= PACKETS);
            let lost: u64 = report.damage.iter().map(|damage| damage.len).sum();
            prop_assert!(lost <= bytes.len() as u64);
        }
    }
}

#[test]
fn l_10_blocks_out_of_order_are_read_in_the_order_of_their_numbers() {
    let whole = log();
    let mut shuffled: Vec<&[u8]> = blocks(&whole);
    shuffled.swap(3, 4);
    shuffled.swap(6, 9);
    let shuffled = shuffled.concat();
    let report = |bytes: &[u8]| {
        let mut analysis = Analysis::new(Options::default());
        analysis.add_log(bytes, "log").unwrap();
        let mut report = analysis.finish();
        report.notices.clear();
        serde_json::to_value(&report).unwrap()
    };
    assert_eq!(report(&shuffled), report(&whole));
}

#[test]
fn many_places_of_one_cause_are_one_line() {
    let at = |log: &str, offset, len, reason: &str| LogDamage {
        log: log.to_owned(),
        offset,
        len,
        reason: reason.to_owned(),
    };
    let damage = [
        at("a", 10, 5, "block 3: wrong checksum"),
        at("b", 7, 0, "blocks 1 to 4 are missing"),
        at("a", 90, 6, "block 17: wrong checksum"),
        at("a", 99, 1, "no block"),
    ];
    assert_eq!(
        damage_lines(&damage),
        [
            "a: 11 bytes left out at 2 places, the first at byte 10: block 3: wrong checksum",
            "b: at byte 7: blocks 1 to 4 are missing",
            "a: 1 bytes at byte 99 left out: no block",
        ]
    );
}
