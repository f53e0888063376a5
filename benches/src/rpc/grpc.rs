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
use tonic::body::Body;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::codegen::{BoxFuture, Service, http};
use tonic::server::{NamedService, UnaryService};
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Endpoint, Server};
use tonic::{Request, Response, Status, client, server};
use tonic_prost::ProstCodec;

use crate::rpc::meter::Meter;
use crate::rpc::{BYTE, on_one_thread};
use crate::runtime::said;

const METHOD: &str = "/itg.Asked/Ask";

/// Request and reply.
#[derive(Clone, PartialEq, prost::Message)]
struct Piece {
    #[prost(bytes = "bytes", tag = "1")]
    body: Bytes,
}

/// Answers each request with its first byte.
#[derive(Clone)]
struct Answer;

impl UnaryService<Piece> for Answer {
    type Response = Piece;
    type Future = BoxFuture<Response<Piece>, Status>;

    fn call(&mut self, request: Request<Piece>) -> Self::Future {
        let Piece { body } = request.into_inner();
        let body = body.slice(..body.len().min(1));
        Box::pin(async { Ok(Response::new(Piece { body })) })
    }
}

/// The service: what `tonic-build` would write.
#[derive(Clone)]
struct Asked;

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
        Box::pin(async move {
            if request.uri().path() != METHOD {
                return Ok(Status::unimplemented("no such method").into_http());
            }
            let mut grpc = server::Grpc::new(ProstCodec::<Piece, Piece>::default());
            Ok(grpc.unary(Answer, request).await)
        })
    }
}

/// Serves until it is killed.
pub(crate) fn serve() -> Result<()> {
    on_one_thread(async {
        let any = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0);
        let incoming = TcpIncoming::bind(any)?.with_nodelay(Some(true));
        said(incoming.local_addr()?);
        Ok(Server::builder().add_service(Asked).serve_with_incoming(incoming).await?)
    })
}

pub(crate) fn call(at: SocketAddr, size: usize, time: Duration) -> Result<Meter> {
    on_one_thread(async {
        let channel =
            Endpoint::from_shared(format!("http://{at}"))?.tcp_nodelay(true).connect().await?;
        let mut grpc = client::Grpc::new(channel);
        let path = PathAndQuery::from_static(METHOD);
        let body = Bytes::from(vec![BYTE; size]);
        let mut meter = Meter::start(time);
        loop {
            grpc.ready().await?;
            let request = Request::new(Piece { body: body.clone() });
            let codec = ProstCodec::<Piece, Piece>::default();
            let reply = grpc.unary(request, path.clone(), codec).await?.into_inner();
            if !meter.lap(&reply.body) {
                return Ok(meter);
            }
        }
    })
}
