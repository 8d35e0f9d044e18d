//! What a section of the fair lock costs where many want it, counted by the server.

use lockwright::Client;

use crate::support::server::Server;

/// Fails where a claim is renewed before a third of it is over, and where a reply that names a hold, whose message is
/// still on its way, has the client ask for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_contended_section_costs_two_calls() {
    const CLIENTS: u64 = 4;
    const TASKS: u64 = 8;
    const SECTIONS: u64 = 40;
    let server = Server::start();
    let mut tasks = Vec::new();
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        clients.push(Client::connect(&server.url()).await.expect("the server is there"));
    }
    let before = server.script_calls();
    for client in &clients {
        for _ in 0..TASKS {
            let lock = client.fair_lock("a");
            tasks.push(tokio::spawn(async move {
                for _ in 0..SECTIONS {
                    lock.lock().await.expect("it is granted").unlock().await.expect("it is held");
                }
            }));
        }
    }
    for task in tasks {
        task.await.expect("no task panics");
    }
    let (calls, sections) = (server.script_calls() - before, CLIENTS * TASKS * SECTIONS);
    assert!(calls >= 2 * sections, "{calls} calls for {sections} sections");
    // The first tickets of a run are asked for twice, and whoever waits for long polls.
    assert!(calls * 100 <= 202 * sections, "{calls} calls for {sections} sections");
}
