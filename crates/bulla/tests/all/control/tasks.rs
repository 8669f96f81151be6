//! The background tasks of a server.

use super::House;

#[test]
fn each_background_task_of_the_server_runs_exactly_once() {
    let house = House::up();
    let metrics = String::from_utf8(house.does(&["api", "/metrics"]).stdout).unwrap();
    for kind in ["access-upkeep", "event-feed", "server-upkeep"] {
        let wanted = format!("bulla_tasks_live{{kind=\"{kind}\"}} 1");
        assert!(metrics.lines().any(|line| line == wanted), "{wanted} is missing in\n{metrics}");
    }
}
