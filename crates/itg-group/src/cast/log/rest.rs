//! A log at rest: what a member does in its [`Pace`](super::pace::Pace).

use std::time::Duration;

use itg_process::{Action, Time};

use super::{Log, Out, Phase, Settings, Timer};

/// Doublings of the interval while a process waits for a state: it is asked for within two seconds.
const MOST_JOINING: u32 = 5;

impl Log {
    /// Time until this member says again how far it is.
    fn interval(&self, most_doublings: u32) -> Duration {
        let Settings { status, rest, .. } = self.settings;
        let doubled = 1_u32 << self.pace.quiet.min(most_doublings).min(20);
        status.saturating_mul(doubled).min(rest.max(status))
    }

    /// Returns true if intervals become longer at all.
    fn rests(&self) -> bool {
        self.settings.rest > self.settings.status
    }

    /// Returns true if nothing has changed since the others were told, and nothing is waited for.
    fn is_at_rest(&self) -> bool {
        self.backlog.waiting() == 0
            && self.instance.is_idle()
            && self.keep.is_at_rest(self.k)
            && self.transfer.is_at_rest()
            && self.pace.told == Some(self.progress())
    }

    /// Tells the others, now, how far this member is: sets the time of the next time.
    pub(super) fn paced(&mut self, now: Time, out: &mut Out<Self>) {
        self.pace.quiet = if self.rests() && self.is_at_rest() { self.pace.quiet + 1 } else { 0 };
        self.pace.told = Some(self.progress());
        out.push(Action::SetTimer(Timer::Status, now + self.interval(u32::MAX)));
    }

    /// A process without a view has asked for a state: sets the time of the next time.
    pub(super) fn paced_joining(&mut self, now: Time, out: &mut Out<Self>) {
        out.push(Action::SetTimer(Timer::Status, now + self.interval(MOST_JOINING)));
        self.pace.quiet += u32::from(self.rests());
    }

    /// Goes back to the usual interval when something has changed, or is waited for.
    pub(super) fn stir(&mut self, now: Time, out: &mut Out<Self>) {
        if self.pace.quiet > 0 && self.life == Phase::Member && !self.is_at_rest() {
            self.pace.quiet = 0;
            out.push(Action::SetTimer(Timer::Status, now + self.interval(0)));
        }
    }

    /// A process is heard again, or connected to: either side may lack what the other has said.
    pub(super) const fn tell_anew(&mut self) {
        self.pace.told = None;
    }

    /// Time-outs follow the longest round trip.
    pub(super) fn follow_round_trip(&mut self, ns: u64) {
        let round_trip = Duration::from_nanos(ns);
        self.settings.rotate = self.pace.rotate + 2 * round_trip;
        self.settings.status = self.pace.status + 4 * round_trip;
    }
}
