//! The signalling port of a receiver.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use itg_socket::socket::SocketError;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::TcpListener;

use super::options::ReceiverOptions;

/// Opens the signalling port; for an unspecified address those of both IP versions.
pub(super) fn open(options: &ReceiverOptions) -> Result<Vec<TcpListener>, SocketError> {
    let mut listeners = Vec::new();
    let mut addresses = vec![options.listen];
    if options.listen.ip().is_unspecified() {
        let other: IpAddr = if options.listen.is_ipv4() {
            Ipv6Addr::UNSPECIFIED.into()
        } else {
            Ipv4Addr::UNSPECIFIED.into()
        };
        addresses.push(SocketAddr::new(other, options.listen.port()));
    }
    for address in addresses {
        match listen(address, options.classic.signalling_interface.as_deref()) {
            Ok(listener) => listeners.push(listener),
            // A host without one of the IP versions serves the other.
            Err(error)
                if error.raw_os_error() == Some(libc::EAFNOSUPPORT)
                    || error.raw_os_error() == Some(libc::EADDRNOTAVAIL) =>
            {
                tracing::debug!(%address, %error, "not listening");
            }
            Err(error) => {
                let hint = match error.raw_os_error() {
                    Some(libc::EADDRINUSE) => {
                        ": another receiver runs there; stop it or choose another port with --listen"
                    }
                    Some(libc::EACCES) => ": ports below 1024 need root",
                    _ => "",
                };
                return Err(SocketError::new(
                    format!("listening for senders on {address}"),
                    format!("{error}{hint}"),
                ));
            }
        }
    }
    if listeners.is_empty() {
        return Err(SocketError::new(
            format!("listening for senders on {}", options.listen),
            "no interface of this host has that address",
        ));
    }
    Ok(listeners)
}

fn listen(address: SocketAddr, interface: Option<&str>) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.set_reuse_address(true)?;
    if let Some(name) = interface
        && let Err(error) = socket.bind_device(Some(name.as_bytes()))
    {
        tracing::warn!(%error, name, "signalling is not bound to the interface");
    }
    socket.bind(&address.into())?;
    socket.listen(1024)?;
    socket.set_nonblocking(true)?;
    TcpListener::from_std(socket.into())
}
