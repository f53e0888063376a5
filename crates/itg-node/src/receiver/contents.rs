//! Payloads that packets of a session's flows should have.

use std::sync::Arc;

use itg_core::flow::{FlowSpec, Payload};
use itg_core::payload::Content;
use itg_core::payload_check::{Expected, PayloadCheck};
use itg_core::seed::RunSeed;

/// Content drawn from the seed of the run, 1.1 MB, as soon as a flow has it.
#[derive(Default)]
pub(super) struct Contents(Option<Arc<Content>>);

impl Contents {
    /// The comparison of a flow's payloads; `None` where its description does not give them.
    pub(super) fn check(
        &mut self,
        spec: &FlowSpec,
        seed: u64,
        proven: bool,
    ) -> Option<PayloadCheck> {
        let expected = match &spec.payload {
            Payload::Random => {
                let content =
                    self.0.get_or_insert_with(|| Arc::new(Content::random(RunSeed(seed))));
                Expected::Seeded(Arc::clone(content))
            }
            Payload::Pattern(bytes) if !bytes.is_empty() => Expected::Pattern(bytes.clone()),
            Payload::Pattern(_) | Payload::File(_) => return None,
        };
        Some(PayloadCheck::new(expected, spec.id, proven))
    }
}
