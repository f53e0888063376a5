//! Agents on this host, as children of a test.

use std::net::TcpListener;
use std::process::Child;

/// A process that ends with the test.
pub(crate) struct Kept(pub(crate) Child);

impl Drop for Kept {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// A port that is free, and the next one, too.
pub(crate) fn port() -> u16 {
    for _ in 0..100 {
        let first = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = first.local_addr().expect("an address").port();
        if port < u16::MAX && TcpListener::bind(("127.0.0.1", port + 1)).is_ok() {
            return port;
        }
    }
    panic!("no two ports beside each other");
}
