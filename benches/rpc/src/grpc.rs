//! tonic: gRPC over HTTP/2. Messages and service are written by hand, so that no compiler of `.proto` files is
//! needed; on the wire they are
//!
//! ```proto
//! service itg.Asked { rpc Ask(Bytes) returns (Bytes); }
//! message Bytes { bytes body = 1; }
//! ```

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::task::{Context, Poll};
use std::time::Duration;

use anyhow::Result;
use bytes::Bytes;
use itg_trials::said;
use tokio::net::TcpListener;
use tonic::body::Body;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::codegen::{BoxFuture, Service, http};
use tonic::server::{NamedService, UnaryService};
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Request, Response, Status, client, server};
use tonic_prost::ProstCodec;

use crate::common::{BYTE, on_one_thread};
use crate::meter::Meter;
use crate::transport::{Carry, Inbox, reply};

const METHOD: &str = "/itg.Asked/Ask";

/// Request and reply.
#[derive(Clone, PartialEq, prost::Message)]
struct Piece {
    #[prost(bytes = "bytes", tag = "1")]
    body: Bytes,
}

/// Answers each request with its first byte; frames for a process go to its inbox before.
#[derive(Clone)]
struct Answer(Option<Inbox>);

impl UnaryService<Piece> for Answer {
    type Response = Piece;
    type Future = BoxFuture<Response<Piece>, Status>;

    fn call(&mut self, request: Request<Piece>) -> Self::Future {
        let Piece { body } = request.into_inner();
        let (first, inbox) = (reply(&body), self.0.clone());
        Box::pin(async move {
            if let Some(inbox) = inbox {
                inbox.take(&body).await;
            }
            Ok(Response::new(Piece { body: first }))
        })
    }
}

/// The service: what `tonic-build` would write.
#[derive(Clone)]
struct Asked(Answer);

impl NamedService for Asked {
    const NAME: &'static str = "itg.Asked";
}

impl Service<http::Request<Body>> for Asked {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let answer = self.0.clone();
        Box::pin(async move {
            if request.uri().path() != METHOD {
                return Ok(Status::unimplemented("no such method").into_http());
            }
            let mut grpc = server::Grpc::new(ProstCodec::<Piece, Piece>::default());
            Ok(grpc.unary(answer, request).await)
        })
    }
}

/// Serves until it is killed.
pub(crate) fn serve() -> Result<()> {
    on_one_thread(async {
        let any = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0);
        let incoming = TcpIncoming::bind(any)?.with_nodelay(Some(true));
        said(incoming.local_addr()?);
        served(incoming, Answer(None)).await
    })
}

async fn served(incoming: TcpIncoming, answer: Answer) -> Result<()> {
    Ok(Server::builder().add_service(Asked(answer)).serve_with_incoming(incoming).await?)
}

async fn connected(at: SocketAddr) -> Result<client::Grpc<Channel>> {
    let endpoint = Endpoint::from_shared(format!("http://{at}"))?.tcp_nodelay(true);
    Ok(client::Grpc::new(endpoint.connect().await?))
}

async fn ask(grpc: &mut client::Grpc<Channel>, body: Bytes) -> Result<Bytes> {
    grpc.ready().await?;
    let codec = ProstCodec::<Piece, Piece>::default();
    let path = PathAndQuery::from_static(METHOD);
    Ok(grpc.unary(Request::new(Piece { body }), path, codec).await?.into_inner().body)
}

pub(crate) fn call(at: SocketAddr, size: usize, time: Duration) -> Result<Meter> {
    on_one_thread(async {
        let mut grpc = connected(at).await?;
        let body = Bytes::from(vec![BYTE; size]);
        let mut meter = Meter::start(time);
        loop {
            if !meter.lap(&ask(&mut grpc, body.clone()).await?) {
                return Ok(meter);
            }
        }
    })
}

/// Frames by tonic.
pub(crate) struct Carrier(client::Grpc<Channel>);

impl Carry for Carrier {
    async fn serve(listener: TcpListener, inbox: Inbox) -> Result<()> {
        let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
        served(incoming, Answer(Some(inbox))).await
    }

    async fn connect(at: SocketAddr) -> Result<Self> {
        Ok(Self(connected(at).await?))
    }

    async fn carry(&mut self, frame: Bytes) -> Result<()> {
        ask(&mut self.0, frame).await?;
        Ok(())
    }
}
