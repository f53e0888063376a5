//! The layer that docs/layers.md shows, written as a user would: without a look into the framework.

use itg_process::{Build, ConfigError, Ctx, Layer, Level, Message, SECOND, TimerId, layer_events};

layer_events! {
    /// Events of the layer.
    pub(crate) enum MeterEvent {
        /// Number of messages that have passed.
        Passed { up: u64, down: u64 } = "meter",
    }
}

struct Meter {
    period: u64,
    up: u64,
    down: u64,
}

impl Layer for Meter {
    fn on_start(&mut self, cx: &mut Ctx<'_>) {
        cx.set_timer_after(self.period);
    }
    fn send(&mut self, message: Message, cx: &mut Ctx<'_>) {
        self.down += 1;
        cx.down(message);
    }
    fn deliver(&mut self, message: Message, cx: &mut Ctx<'_>) {
        self.up += 1;
        cx.up(message);
    }
    fn timer(&mut self, _id: TimerId, cx: &mut Ctx<'_>) {
        cx.log(Level::Info, MeterEvent::Passed { up: self.up, down: self.down });
        cx.set_timer_after(self.period);
    }
}

pub(crate) fn make(build: &mut Build<'_>) -> Result<Box<dyn Layer>, ConfigError> {
    let period = build.params.time_ns("period", SECOND)?;
    Ok(Box::new(Meter { period, up: 0, down: 0 }))
}
