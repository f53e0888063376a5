//! A node without its console, and one that is started again and again.

use std::time::Duration;

use itg_control::{Command, ControlRequest, Replica};
use tokio::time::Instant;

use super::Work;
use crate::restless::gifts;

impl Work {
    /// Returns true if the console has gone.
    pub(super) fn alone(&self) -> bool {
        let seen = self.handle.seen();
        let console = u32::try_from(self.handle.member.join.addresses.len()).unwrap_or(0) - 1;
        !seen.slots.is_empty() && !seen.slots.contains(&console)
    }

    /// Without a console, follows the run by itself, and has its flows stopped when it is missed for too long.
    pub(super) async fn look_for_console(&mut self) {
        if !self.alone() {
            self.alone_since = None;
            return;
        }
        let alone = self.alone_since.get_or_insert_with(Instant::now).elapsed();
        let after = self.replica.borrow().as_ref().map(|replica| replica.rules().orphan_after_ns);
        self.handle.member.ask(ControlRequest::Look).await;
        if !self.draining && after.is_some_and(|after| alone > Duration::from_nanos(after)) {
            tracing::warn!("there has been no console for {} s: flows stop", alone.as_secs());
            let stop = ControlRequest::Command(Command::Stop { flow: None });
            self.handle.member.ask(stop).await;
        }
    }

    /// Has other nodes send the flows of this one, once, where it is started again and again.
    pub(super) fn give_away(&mut self, replica: &Replica) {
        let member = &self.handle.member;
        if self.setup.restless {
            let gifts = gifts(replica, member.join.slot);
            self.setup.restless = gifts.is_empty();
            for (flow, to) in gifts {
                tracing::warn!("flow {flow} is given away: this node is started again and again");
                member.try_ask(&ControlRequest::Command(Command::Reassign { flow, to }));
            }
        }
    }
}
