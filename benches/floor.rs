//! The lower bound of a broker, as programs: the cost of moving the same bytes through the kernel
//! without a broker. Figures of krust and its peers are ratios to these.
//!
//!     floor receive --dir DIR   frames in; CRC-32C; 1 MiB at a time appended to plain files; tiny reply
//!     floor send    --dir DIR   a tiny frame in; a reply of `--reply` bytes out, by sendfile
//!     floor echo                frames in; a reply of `--reply` bytes out each (one send an event)
//!     floor net-receive | net-send | net-echo   the same work as a service on krust's net module
//!
//! Listens on 127.0.0.1, prints `{"port": .., "pid": ..}`, ends when standard input closes. Frames
//! have Kafka's length prefix; a tiny reply is a frame of 8 bytes. One thread, epoll through mio.
//! Files are cut at `--file-bytes` and written again, so that the same pages are used over and over.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "a program that measures stops at the first surprise"
)]

use std::fs::File;
use std::io::{self, ErrorKind, IoSlice, Read, Seek, SeekFrom, Write};
use std::net::SocketAddr;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use krust::broker::{
    ConnId, DelayedReply, EventContext, Flow, Peer, ReceivedFrames, Replies, Service,
};
use krust::clock::SystemClock;
use krust::net::{ListenAddress, Mailboxes, NetworkOptions, Server};
use krust::storage::files::FileRange;
use krust::sys;
use krust::transport::frame::{self, NextFrame};
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};

const WRITE: usize = 1 << 20;
/// The batches a log is made of, just under the default `max.message.bytes`.
const APPEND: usize = 1_048_500;
const FRAME_MAX: usize = 100 << 20;

#[derive(Clone)]
struct Arguments {
    mode: String,
    dir: PathBuf,
    reply: usize,
    file_bytes: u64,
    send_buffer: usize,
    busy_us: u64,
}

fn main() {
    let arguments = parse();
    let work = Work::new(&arguments);
    match arguments.mode.strip_prefix("net-") {
        Some(_) => run_net(&arguments, work),
        None => run_bare(&arguments, work),
    }
}

fn parse() -> Arguments {
    let mut given = std::env::args().skip(1);
    let mode = given.next().expect("a mode: receive, send, echo, net-receive, net-send, net-echo");
    let mut arguments = Arguments {
        mode,
        dir: PathBuf::from("."),
        reply: 8,
        file_bytes: 256 << 20,
        send_buffer: 256 << 10,
        busy_us: 0,
    };
    while let Some(flag) = given.next() {
        let value = given.next().expect("a value after each flag");
        let number = || value.parse::<u64>().expect("a number");
        match flag.as_str() {
            "--dir" => arguments.dir = PathBuf::from(&value),
            "--reply" => arguments.reply = number() as usize,
            "--file-bytes" => arguments.file_bytes = number(),
            "--send-buffer" => arguments.send_buffer = number() as usize,
            "--busy-us" => arguments.busy_us = number(),
            other => panic!("unknown flag {other}"),
        }
    }
    arguments
}

/// Prints where the program listens; a second thread waits for the end of standard input.
fn announce(port: u16) {
    println!("{{\"port\": {port}, \"pid\": {}}}", std::process::id());
    io::stdout().flush().expect("standard output");
    std::thread::spawn(|| {
        let _ = io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
}

/// What is done with a frame, whichever loop brought it.
enum Work {
    Receive { files: Vec<(File, u64)>, pending: Vec<u8>, limit: u64, turn: usize },
    Send { file: Arc<File>, reply: usize, turn: u64, turns: u64 },
    Echo { reply: usize },
}

impl Work {
    fn new(arguments: &Arguments) -> Self {
        let name = |n: usize| arguments.dir.join(format!("floor-{n}.bin"));
        match arguments.mode.trim_start_matches("net-") {
            "receive" => Self::Receive {
                files: (0..4).map(|n| (create(&name(n)), 0)).collect(),
                pending: Vec::with_capacity(2 * WRITE),
                limit: arguments.file_bytes / 4,
                turn: 0,
            },
            "send" => {
                let mut file = create(&name(9));
                let turns = (arguments.file_bytes / arguments.reply as u64).max(1);
                // Written as a log is: how the cache lays pages out decides what sending costs.
                let batch = vec![7; APPEND];
                for _ in 0..=turns * arguments.reply as u64 / APPEND as u64 {
                    file.write_all(&batch).expect("write the file to send");
                }
                Self::Send { file: Arc::new(file), reply: arguments.reply, turn: 0, turns }
            }
            "echo" => Self::Echo { reply: arguments.reply },
            other => panic!("unknown mode {other}"),
        }
    }

    /// Handles one frame; what is to be sent goes to `replies`.
    fn handle(&mut self, bytes: &[u8], replies: &mut Replies) {
        let output = replies.ready();
        match self {
            Self::Receive { files, pending, limit, turn } => {
                std::hint::black_box(crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes));
                if bytes.len() >= WRITE / 2 {
                    append(files, *turn, *limit, bytes);
                    *turn += 1;
                } else {
                    pending.extend_from_slice(bytes);
                    if pending.len() >= WRITE {
                        append(files, *turn, *limit, pending);
                        pending.clear();
                        *turn += 1;
                    }
                }
                output.buf.extend_from_slice(&[0, 0, 0, 4, 0, 0, 0, 0]);
            }
            Self::Send { file, reply, turn, turns } => {
                output.buf.extend_from_slice(&(*reply as u32 + 4).to_be_bytes());
                output.buf.extend_from_slice(&[0; 4]);
                let position = *turn % *turns * *reply as u64;
                *turn += 1;
                let range = FileRange { file: Arc::clone(file), position, len: *reply };
                output.files.push((output.buf.len(), range));
            }
            Self::Echo { reply } => {
                let body = reply.saturating_sub(frame::PREFIX);
                output.buf.extend_from_slice(&(body as u32).to_be_bytes());
                let size = output.buf.len() + body;
                output.buf.resize(size, 0);
            }
        }
    }
}

fn create(path: &Path) -> File {
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(true);
    options.open(path).expect("a file in --dir")
}

fn append(files: &mut [(File, u64)], turn: usize, limit: u64, bytes: &[u8]) {
    let place = turn % files.len();
    let (file, size) = &mut files[place];
    if *size + bytes.len() as u64 > limit {
        file.set_len(0).expect("cut the file");
        file.seek(SeekFrom::Start(0)).expect("seek");
        *size = 0;
    }
    file.write_all(bytes).expect("write");
    *size += bytes.len() as u64;
}

/// The bare loop: blocking-free sockets, one reusable buffer, reads exactly to the frame's end.
fn run_bare(arguments: &Arguments, mut work: Work) {
    let mut poll = Poll::new().expect("epoll");
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let mut listener = TcpListener::bind(any).expect("bind");
    poll.registry().register(&mut listener, Token(usize::MAX), Interest::READABLE).expect("epoll");
    announce(listener.local_addr().expect("address").port());
    let mut events = Events::with_capacity(64);
    let mut peers: Vec<Option<Bare>> = Vec::new();
    loop {
        match poll.poll(&mut events, None) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            result => result.expect("epoll"),
        }
        for event in &events {
            if event.token() == Token(usize::MAX) {
                while let Ok((mut stream, _)) = listener.accept() {
                    stream.set_nodelay(true).expect("nodelay");
                    rustix::net::sockopt::set_socket_send_buffer_size(
                        &stream,
                        arguments.send_buffer,
                    )
                    .expect("send buffer");
                    let both = Interest::READABLE | Interest::WRITABLE;
                    poll.registry().register(&mut stream, Token(peers.len()), both).expect("epoll");
                    peers.push(Some(Bare::new(stream)));
                }
            } else if let Some(place) = peers.get_mut(event.token().0) {
                let gone = place.as_mut().is_some_and(|peer| peer.serve(&mut work).is_err());
                if gone {
                    *place = None;
                }
            }
        }
    }
}

struct Bare {
    stream: TcpStream,
    buf: Vec<u8>,
    filled: usize,
    bytes: Vec<u8>,
    sent: usize,
    ranges: Vec<(FileRange, usize)>,
}

impl Bare {
    fn new(stream: TcpStream) -> Self {
        let (bytes, ranges) = (Vec::new(), Vec::new());
        Self { stream, buf: vec![0; WRITE + 4096], filled: 0, bytes, sent: 0, ranges }
    }

    fn serve(&mut self, work: &mut Work) -> io::Result<()> {
        self.send()?;
        loop {
            let end = match frame::next(&self.buf[..self.filled], 0, FRAME_MAX) {
                Ok(NextFrame::Part(size)) if size > 64 << 10 => size,
                _ => 64 << 10,
            };
            if self.buf.len() < end {
                self.buf.resize(end, 0);
            }
            let room = &mut self.buf[self.filled..end];
            let wanted = room.len();
            let count = match self.stream.read(room) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            };
            self.filled += count;
            self.handle(work);
            self.send()?;
            if count < wanted {
                return Ok(());
            }
        }
    }

    fn handle(&mut self, work: &mut Work) {
        let mut replies = Replies::default();
        let mut at = 0;
        while let Ok(NextFrame::Whole(range)) = frame::next(&self.buf[..self.filled], at, FRAME_MAX)
        {
            at = range.end;
            work.handle(&self.buf[range], &mut replies);
        }
        self.buf.copy_within(at..self.filled, 0);
        self.filled -= at;
        while let Some(output) = replies.take() {
            self.bytes.extend_from_slice(&output.buf);
            self.ranges.extend(output.files.into_iter().map(|(_, range)| (range, 0)));
        }
    }

    fn send(&mut self) -> io::Result<()> {
        match self.try_send() {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(()),
            result => result,
        }
    }

    /// All bytes, then all ranges: with one request at a time that is the order of the wire.
    fn try_send(&mut self) -> io::Result<()> {
        while self.sent < self.bytes.len() {
            let bytes = [IoSlice::new(&self.bytes[self.sent..])];
            self.sent += sys::send(&self.stream, &bytes, !self.ranges.is_empty())?;
        }
        self.bytes.clear();
        self.sent = 0;
        while let Some((range, at)) = self.ranges.first_mut() {
            let position = range.position + *at as u64;
            *at += sys::sendfile(&self.stream, &range.file, position, range.len - *at)?;
            if *at == range.len {
                self.ranges.remove(0);
            }
        }
        Ok(())
    }
}

/// The same work behind the net module.
struct Floor(parking_lot::Mutex<Option<Work>>);

impl Service for Floor {
    type Thread = Work;
    type ConnectionContext = ();
    type Wake = ();

    fn thread(&self, _index: usize) -> Work {
        self.0.lock().take().expect("one thread")
    }

    fn opened(&self, _thread: &mut Work, _peer: Peer) {}

    fn event(
        &self,
        at: EventContext<'_, Self>,
        received: ReceivedFrames<'_>,
        replies: &mut Replies,
    ) -> Flow {
        let frames: &[Range<usize>] = received.frames;
        for frame in frames {
            at.thread.handle(&received.buf[frame.clone()], replies);
        }
        Flow::Go
    }

    fn wake(&self, _thread: &mut Work, _wakes: &mut Vec<()>, _done: &mut Vec<DelayedReply>) {}

    fn expire(&self, _thread: &mut Work, _now_ms: i64, _done: &mut Vec<DelayedReply>) {}

    fn next_deadline(&self, _thread: &Work) -> Option<i64> {
        None
    }

    fn closed(&self, _thread: &mut Work, _conn: ConnId, _session: ()) {}
}

fn run_net(arguments: &Arguments, work: Work) {
    let endpoint = ListenAddress { name: "PLAINTEXT".into(), host: "127.0.0.1".into(), port: 0 };
    let options = NetworkOptions {
        endpoints: vec![endpoint],
        near_send_buffer: arguments.send_buffer,
        busy_poll_us: arguments.busy_us,
        ..NetworkOptions::default()
    };
    let service = Arc::new(Floor(parking_lot::Mutex::new(Some(work))));
    let server = Server::start(options, service, Mailboxes::new(1), Arc::new(SystemClock))
        .expect("the server starts");
    announce(server.bound()[0].address.port());
    loop {
        std::thread::park();
    }
}
