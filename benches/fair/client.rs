//! The same from a client's side: the way from a release to the next holder, and ten thousand cancellations.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use lockwright::{Client, Guard, Place, Step};

use crate::figure;
use crate::scene::MANY;
use crate::support::server::Server;
use crate::support::{bare, floor_call, median};

pub fn measure() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let server = Server::start();
        let (mut short, mut long) =
            (Line::new(&server, "short", 1).await, Line::new(&server, "long", MANY).await);
        let (mut at_one, mut at_many, mut ratios, mut trips) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for _ in 0..9 {
            let (one, many) = (short.turns(100).await, long.turns(100).await);
            at_one.push(one);
            at_many.push(many);
            ratios.push(many / one);
            trips.push(round_trip(&server).await);
        }
        let (one, many, trip) = (median(at_one), median(at_many), median(trips));
        figure(
            "hand-over in a client",
            &[
                ("at_1_us", one),
                ("at_10000_us", many),
                ("ratio", median(ratios)),
                ("x_round_trip_at_1", one / trip),
                ("x_round_trip_at_10000", many / trip),
            ],
        );
        let watcher = Client::connect(&server.url()).await.expect("the server is there");
        let began = Instant::now();
        long.places.clear();
        while watcher.inspect("long").await.expect("the server answers").waiting_count > 0 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        let seconds = began.elapsed().as_secs_f64();
        figure("10,000 cancellations", &[("seconds", seconds), ("limit_seconds", 5.0)]);
    });
}

/// A holder, and those who wait.
struct Line {
    client: Client,
    name: &'static str,
    guard: Option<Guard>,
    places: VecDeque<Place>,
}

impl Line {
    async fn new(server: &Server, name: &'static str, count: usize) -> Self {
        let client = Client::connect(&server.url()).await.expect("the server is there");
        let guard = Some(client.fair_lock(name).lock().await.expect("it is free"));
        let mut line = Self { client, name, guard, places: VecDeque::new() };
        for _ in 0..count {
            line.join().await;
        }
        line
    }

    async fn join(&mut self) {
        let place = self.client.fair_lock(self.name).queue().await.expect("the server answers");
        self.places.push_back(place);
    }

    /// The median way from a release to the next holder, in microseconds; as many wait afterwards.
    async fn turns(&mut self, times: usize) -> f64 {
        let mut ways = Vec::new();
        for _ in 0..times {
            let mut next = self.places.pop_front().expect("somebody waits");
            let began = Instant::now();
            self.guard.take().expect("it is held").unlock().await.expect("it is held");
            self.guard = loop {
                if let Step::Granted(guard) = next.next().await.expect("the server answers") {
                    break Some(guard);
                }
            };
            ways.push(began.elapsed().as_secs_f64() * 1e6);
            self.join().await;
        }
        median(ways)
    }
}

/// The median time of a script that does nothing, in microseconds.
async fn round_trip(server: &Server) -> f64 {
    let (wire, _events) = bare(&server.url()).await;
    let mut times = Vec::new();
    for _ in 0..300 {
        let asked = Instant::now();
        wire.call(floor_call("floor"), Duration::from_secs(1)).await.outcome.expect("the server answers");
        times.push(asked.elapsed().as_secs_f64() * 1e6);
    }
    wire.close().await;
    median(times)
}
