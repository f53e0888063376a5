//! `itg-cluster process --return`: the ticket of the next incarnation is on disk before any other
//! process hears of it.
#![allow(missing_docs, reason = "tests")]

use std::fs;
use std::io::ErrorKind;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use itg_process::bootstrap::Ticket;
use itg_tests::{Running, program, temp_dir};

const LIMIT: Duration = Duration::from_secs(60);

fn back(ticket: &Path) -> Running {
    Running::start(Command::new(program("itg-cluster")).args(["process", "--return"]).arg(ticket))
}

fn read(path: &Path) -> Ticket {
    fs::read_to_string(path).expect("a ticket").parse().expect("a ticket")
}

/// The other process of the run: it listens, and that is all.
fn other(dir: &Path) -> (TcpListener, std::path::PathBuf) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.set_nonblocking(true).expect("a socket");
    let at = listener.local_addr().expect("an address");
    let ticket = dir.join("ticket");
    let addresses = vec![vec![format!("tcp {at}")], Vec::new()];
    let text = Ticket { run: 7, slot: 1, incarnation: 1, addresses }.to_string();
    fs::write(&ticket, text).expect("written");
    (listener, ticket)
}

fn accept(listener: &TcpListener) -> TcpStream {
    let deadline = Instant::now() + LIMIT;
    loop {
        match listener.accept() {
            Ok((stream, _)) => return stream,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                assert!(Instant::now() < deadline, "nobody calls");
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn who_is_killed_while_it_asks_for_its_place_counts_on() {
    let dir = temp_dir();
    let (listener, ticket) = other(dir.path());
    for incarnation in 2..5 {
        let running = back(&ticket);
        let called = accept(&listener);
        // Killed, and reaped.
        drop(running);
        drop(called);
        assert_eq!(read(&ticket).incarnation, incarnation);
    }
}

#[test]
fn a_ticket_that_cannot_be_written_is_not_used() {
    let dir = temp_dir();
    let (listener, ticket) = other(dir.path());
    fs::create_dir(dir.path().join("ticket.new")).expect("a directory in its way");
    let done = back(&ticket).finish(LIMIT).exits(1);
    assert!(done.err.contains("cannot write the ticket"), "{done}");
    assert_eq!(listener.accept().expect_err("a call").kind(), ErrorKind::WouldBlock);
    assert_eq!(read(&ticket).incarnation, 1);
}
