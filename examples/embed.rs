//! A sender and a receiver within one program, over loopback: a seeded flow, both logs, the report.
//!
//! `embed DIR` leaves `send.itg` and `recv.itg` in DIR, for `itg-decode` or the example `histogram`.

use std::error::Error;
use std::path::PathBuf;
use std::{env, fs};

use itg_core::distribution::{Distribution, Unit};
use itg_core::flow::{Flow, FlowSpec};
use itg_core::payload::Content;
use itg_core::seed::RunSeed;
use itg_engine::LogTarget;
use itg_node::{Receiver, ReceiverOptions, SendFlow, SendJob, send};
use itg_stats::{Analysis, Options, summary};
use tokio::sync::watch;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let dir = env::args_os().nth(1).map(PathBuf::from).ok_or("name a directory for the logs")?;
    let (sent, received) = (dir.join("send.itg"), dir.join("recv.itg"));

    let options = ReceiverOptions::new("127.0.0.1:0".parse()?);
    let receiver = Receiver::bind(options.log(LogTarget::File(received.clone())))?;
    let address = receiver.addresses().next().ok_or("the receiver has no address")?;
    let (stop, stopped) = watch::channel(None);
    let receiving = tokio::spawn(receiver.serve(stopped.clone()));

    let seed = RunSeed(42);
    let idt = Distribution::parse("exp(1ms)", Unit::Time)?;
    let size = Distribution::parse("uniform(64, 1400)", Unit::Size)?;
    let flow = Flow::resolve(FlowSpec::new(1).idt(idt).size(size).packets(1000), seed)?;
    let flow = SendFlow::new(flow, address, Content::random(seed)).name("poisson");
    let outcome = send(SendJob::new(seed, vec![flow]).log(LogTarget::File(sent.clone())), stopped);
    if let Some((host, why)) = outcome.await?.failures.first() {
        return Err(format!("{host}: {why}").into());
    }
    stop.send(Some("the sender has left".to_owned()))?;
    receiving.await?;

    let logs = [fs::read(&sent)?, fs::read(&received)?];
    let mut analysis = Analysis::new(Options::default());
    for (bytes, path) in logs.iter().zip([&sent, &received]) {
        analysis.add_log(bytes, &path.display().to_string())?;
    }
    print!("{}", summary::render(&analysis.finish()));
    Ok(())
}
