//! A network between client and server: everything arrives a fixed time later, in both directions.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Listens until the process ends. Returns the URL of the way through it.
pub fn start(port: u16, one_way: Duration) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("redis://{}", listener.local_addr().expect("it listens"));
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let Ok(server) = TcpStream::connect(("127.0.0.1", port)) else { continue };
            carry(client.try_clone().expect("a socket"), server.try_clone().expect("a socket"), one_way);
            carry(server, client, one_way);
        }
    });
    url
}

/// Threads and not tasks: a runtime's timer is too coarse for half a millisecond.
fn carry(mut from: TcpStream, mut to: TcpStream, one_way: Duration) {
    let (sender, parcels) = mpsc::channel::<(Instant, Vec<u8>)>();
    let _ = to.set_nodelay(true);
    std::thread::spawn(move || {
        let mut buffer = vec![0; 65_536];
        while let Ok(count @ 1..) = from.read(&mut buffer) {
            if sender.send((Instant::now() + one_way, buffer[..count].to_vec())).is_err() {
                break;
            }
        }
    });
    std::thread::spawn(move || {
        while let Ok((due, bytes)) = parcels.recv() {
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            if to.write_all(&bytes).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
    });
}
