//! The runtime of layers: a layer that asks above a network, and one that answers.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use itg_mesh::{Listener, MasterSetup, Meet, SlaveSetup, start_master, start_slave};
use itg_process::bootstrap::Application;
use itg_process::{Ctx, Layer, Message, Registry, Slot, StopReason};
use itg_trials::{MARGIN, said};

use crate::common::BYTE;
use crate::meter::Meter;

/// Both processes; the server is the first.
const APPLICATION: &str = "processes = 2\n[[network]]\nname = \"main\"\nkind = \"tcp\"\n\
    [[process]]\nslot = 0\nlayers = [{ layer = \"answer\" }]\n[[process]]\nlayers = [{ layer = \"ask\" }]\n";
const SERVER: Slot = Slot(0);
/// The type of the messages.
const TYPE: u32 = 1;

/// Sends a request, waits for its reply, and sends the next.
struct Ask {
    body: Bytes,
    time: Duration,
    meter: Option<Meter>,
    done: Sender<Meter>,
}

impl Ask {
    fn ask(&self, cx: &mut Ctx<'_>) {
        cx.down(Message::new(SERVER, TYPE, self.body.clone()));
    }
}

impl Layer for Ask {
    fn on_start(&mut self, cx: &mut Ctx<'_>) {
        self.meter = Some(Meter::start(self.time));
        self.ask(cx);
    }

    fn deliver(&mut self, message: Message, cx: &mut Ctx<'_>) {
        if self.meter.as_mut().is_some_and(|meter| meter.lap(&message.body)) {
            self.ask(cx);
        } else if let Some(meter) = self.meter.take() {
            // It is waited for: see `call`.
            self.done.send(meter).unwrap_or_default();
            cx.shutdown(StopReason::Finished);
        }
    }
}

/// Answers each request with its first byte.
struct Answer;

impl Layer for Answer {
    fn deliver(&mut self, message: Message, cx: &mut Ctx<'_>) {
        let body = message.body.slice(..message.body.len().min(1));
        cx.down(Message::new(message.src, TYPE, body));
    }
}

fn registry(size: usize, time: Duration, done: Sender<Meter>) -> Registry {
    let body = Bytes::from(vec![BYTE; size]);
    Registry::new().with("answer", |_| Ok(Box::new(Answer))).with("ask", move |_| {
        Ok(Box::new(Ask { body: body.clone(), time, meter: None, done: done.clone() }))
    })
}

pub(crate) fn serve(time: Duration) -> Result<()> {
    let listener = Listener::bind(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0))?;
    said(listener.address());
    let registry = registry(1, time, channel().0);
    let text = APPLICATION.to_owned();
    let application = Application { origin: "benchmark".to_owned(), text, seed: 1, network: None };
    let mut setup = MasterSetup::new(&application, &registry);
    setup.listener = Some(listener);
    let node = start_master(setup)?;
    ensure!(node.wait(time + MARGIN).is_some(), "the processes did not stop");
    drop(node.finish());
    Ok(())
}

pub(crate) fn call(at: SocketAddr, size: usize, time: Duration) -> Result<Meter> {
    let (done, meters) = channel();
    let registry = registry(size, time, done);
    let node = start_slave(SlaveSetup::new(&registry, Meet::Call(at.to_string())))?;
    ensure!(node.wait(time + MARGIN).is_some(), "the processes did not stop");
    drop(node.finish());
    meters.try_recv().context("the processes stopped before the time was over")
}
