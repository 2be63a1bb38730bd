//! The lower bound of replication, as programs: what the kernel alone costs where one leader and two
//! followers have the same bytes. Nothing is checked, parsed or remembered.
//!
//!     replicas_floor produce  --dir DIR   a frame in; written; sent to two followers by sendfile;
//!                                         each reads, writes and answers; then a tiny reply
//!     replicas_floor catch-up --dir DIR --bytes N   a file of so many bytes is sent to one follower
//!                                         by sendfile, which writes a new file; prints the seconds
//!
//! `produce` listens on 127.0.0.1, prints `{"port": .., "pid": ..}`, serves one connection at a time,
//! and ends when standard input closes. Frames have Kafka's length prefix. The leader and each
//! follower are a thread with blocking sockets. The files of `produce` are written again and again, so
//! that the same pages are used; a follower that catches up writes new pages, as a broker does.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "a program that measures stops at the first surprise"
)]

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use krust::sys;

const FOLLOWERS: usize = 2;
/// A file is written again from its start after so many bytes.
const FILE_BYTES: u64 = 256 << 20;
const CHUNK: usize = 1 << 20;
const REPLY: [u8; 8] = [0, 0, 0, 4, 0, 0, 0, 0];

fn main() {
    let mut given = std::env::args().skip(1);
    let mode = given.next().expect("a mode: produce or catch-up");
    let (mut folder, mut bytes) = (PathBuf::from("."), 1_u64 << 30);
    while let Some(flag) = given.next() {
        let value = given.next().expect("a value after each flag");
        match flag.as_str() {
            "--dir" => folder = PathBuf::from(value),
            "--bytes" => bytes = value.parse().expect("a number"),
            other => panic!("unknown flag {other}"),
        }
    }
    match mode.as_str() {
        "produce" => produce(&folder),
        "catch-up" => catch_up(&folder, bytes),
        other => panic!("unknown mode {other}"),
    }
}

fn create(path: &Path) -> File {
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(true);
    options.open(path).expect("a file in --dir")
}

/// Two ends of a connection over the loopback.
fn connected() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let one = TcpStream::connect(listener.local_addr().expect("address")).expect("connect");
    let (other, _) = listener.accept().expect("accept");
    for stream in [&one, &other] {
        stream.set_nodelay(true).expect("nodelay");
    }
    (one, other)
}

fn send_file(socket: &TcpStream, file: &File, mut position: u64, mut size: usize) {
    while size > 0 {
        let sent = sys::sendfile(socket, file, position, size).expect("sendfile");
        position += sent as u64;
        size -= sent;
    }
}

/// Writes frames where the leader has written them, and answers each.
fn follow(mut leader: TcpStream, file: &File) {
    let mut head = [0; 16];
    let mut buf = Vec::new();
    while leader.read_exact(&mut head).is_ok() {
        let (position, size) = head.split_at(8);
        let position = u64::from_be_bytes(position.try_into().unwrap());
        let size = u64::from_be_bytes(size.try_into().unwrap()) as usize;
        buf.resize(size.max(buf.len()), 0);
        leader.read_exact(&mut buf[..size]).expect("a whole frame");
        file.write_all_at(&buf[..size], position).expect("write");
        leader.write_all(&REPLY).expect("answer");
    }
}

fn produce(folder: &Path) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let port = listener.local_addr().expect("address").port();
    println!("{{\"port\": {port}, \"pid\": {}}}", std::process::id());
    io::stdout().flush().expect("standard output");
    std::thread::spawn(|| {
        let _ = io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    let file = create(&folder.join("leader.bin"));
    let mut followers: Vec<TcpStream> = (0..FOLLOWERS)
        .map(|index| {
            let (here, there) = connected();
            let copy = create(&folder.join(format!("follower-{index}.bin")));
            std::thread::spawn(move || follow(there, &copy));
            here
        })
        .collect();
    let (mut position, mut buf) = (0, Vec::new());
    for client in listener.incoming() {
        let mut client = client.expect("a connection");
        client.set_nodelay(true).expect("nodelay");
        while let Some(size) = receive(&mut client, &mut buf) {
            if position + size as u64 > FILE_BYTES {
                position = 0;
            }
            file.write_all_at(&buf[..size], position).expect("write");
            replicate(&mut followers, &file, position, size);
            position += size as u64;
            client.write_all(&REPLY).expect("reply");
        }
    }
}

/// One frame with its prefix; `None` at the end of the connection.
fn receive(client: &mut TcpStream, buf: &mut Vec<u8>) -> Option<usize> {
    let mut prefix = [0; 4];
    client.read_exact(&mut prefix).ok()?;
    let size = u32::from_be_bytes(prefix) as usize;
    buf.resize(size.max(buf.len()), 0);
    client.read_exact(&mut buf[..size]).expect("a whole frame");
    Some(size)
}

fn replicate(followers: &mut [TcpStream], file: &File, position: u64, size: usize) {
    for follower in &mut *followers {
        let head = [position.to_be_bytes(), (size as u64).to_be_bytes()].concat();
        follower.write_all(&head).expect("send");
        send_file(follower, file, position, size);
    }
    for follower in followers {
        follower.read_exact(&mut [0; REPLY.len()]).expect("an answer");
    }
}

fn catch_up(folder: &Path, bytes: u64) {
    let source = create(&folder.join("leader.bin"));
    let chunk = vec![7; CHUNK];
    for position in (0..bytes).step_by(CHUNK) {
        source.write_all_at(&chunk, position).expect("write");
    }
    let copy = create(&folder.join("follower.bin"));
    let (here, mut there) = connected();
    let start = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for position in (0..bytes).step_by(CHUNK) {
                send_file(&here, &source, position, CHUNK);
            }
        });
        let mut buf = vec![0; CHUNK];
        for position in (0..bytes).step_by(CHUNK) {
            there.read_exact(&mut buf).expect("a chunk");
            copy.write_all_at(&buf, position).expect("write");
        }
    });
    println!("{{\"seconds\": {:.6}}}", start.elapsed().as_secs_f64());
}
