//! tarpc: remote calls between programs in Rust, length-delimited bincode over TCP.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::Result;
use bytes::Bytes;
use itg_trials::said;
use tarpc::server::{BaseChannel, Channel as _};
use tarpc::tokio_serde::formats::Bincode;
use tarpc::tokio_util::codec::{Framed, LengthDelimitedCodec};
use tarpc::{client, context, serde_transport};
use tokio::net::{TcpListener, TcpStream};
use tokio_stream::StreamExt as _;

use crate::common::{BYTE, on_one_thread};
use crate::meter::Meter;
use crate::transport::{Carry, Inbox, reply};

/// Bytes of the longest frame that is taken.
const FRAME: usize = 2 << 20;

#[tarpc::service]
trait Asked {
    async fn ask(body: Bytes) -> Bytes;
}

/// Answers each request with its first byte.
#[derive(Clone)]
struct Answer;

impl Asked for Answer {
    async fn ask(self, _: context::Context, body: Bytes) -> Bytes {
        body.slice(..body.len().min(1))
    }
}

fn framed(stream: TcpStream) -> Result<Framed<TcpStream, LengthDelimitedCodec>> {
    stream.set_nodelay(true)?;
    Ok(LengthDelimitedCodec::builder().max_frame_length(FRAME).new_framed(stream))
}

pub(crate) fn serve() -> Result<()> {
    on_one_thread(async {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        said(listener.local_addr()?);
        let (stream, _) = listener.accept().await?;
        let transport = serde_transport::new(framed(stream)?, Bincode::default());
        let mut requests =
            std::pin::pin!(BaseChannel::with_defaults(transport).execute(Answer.serve()));
        while let Some(request) = requests.next().await {
            request.await;
        }
        Ok(())
    })
}

pub(crate) fn call(at: SocketAddr, size: usize, time: Duration) -> Result<Meter> {
    on_one_thread(async {
        let stream = framed(TcpStream::connect(at).await?)?;
        let transport = serde_transport::new(stream, Bincode::default());
        let client = AskedClient::new(client::Config::default(), transport).spawn();
        let body = Bytes::from(vec![BYTE; size]);
        let mut meter = Meter::start(time);
        loop {
            let reply = client.ask(context::current(), body.clone()).await?;
            if !meter.lap(&reply) {
                return Ok(meter);
            }
        }
    })
}

/// Takes frames for a process, and answers each with its first byte.
#[derive(Clone)]
struct Take(Inbox);

impl Asked for Take {
    async fn ask(self, _: context::Context, body: Bytes) -> Bytes {
        let reply = reply(&body);
        self.0.take(&body).await;
        reply
    }
}

/// Frames by tarpc.
pub(crate) struct Carrier(AskedClient);

impl Carry for Carrier {
    async fn serve(listener: TcpListener, inbox: Inbox) -> Result<()> {
        loop {
            let (stream, _) = listener.accept().await?;
            let transport = serde_transport::new(framed(stream)?, Bincode::default());
            let take = Take(inbox.clone());
            tokio::spawn(async move {
                let requests = BaseChannel::with_defaults(transport).execute(take.serve());
                let mut requests = std::pin::pin!(requests);
                while let Some(request) = requests.next().await {
                    request.await;
                }
            });
        }
    }

    async fn connect(at: SocketAddr) -> Result<Self> {
        let stream = framed(TcpStream::connect(at).await?)?;
        let transport = serde_transport::new(stream, Bincode::default());
        Ok(Self(AskedClient::new(client::Config::default(), transport).spawn()))
    }

    async fn carry(&mut self, frame: Bytes) -> Result<()> {
        self.0.ask(context::current(), frame).await?;
        Ok(())
    }
}
