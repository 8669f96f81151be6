//! Routes that are reloaded while the terminator runs.

use super::P256;
use super::upstream::{hello, saying};
use super::world::{World, is_alive, sum};
use crate::key_service::until;

#[test]
fn routes_are_reloaded_and_invalid_routes_ignored() {
    let mut world = World::new(&[("a", P256, "DNS:a.example"), ("b", P256, "DNS:b.example")]);
    world.serve(&[]);
    let (one, other) = (hello(), saying("other"));
    world.configure(&format!("[edge]\nupstream = \"{one}\"\n"));
    let edge = world.edge(&["--config", "edge.toml"]);
    let mut open = world.connect(&edge, "a.example");
    assert!(is_alive(&mut open));

    let routed = format!(
        "[edge]\nupstream = \"{one}\"\n[[edge.routes]]\nnames = [\"a.example\"]\nupstream = \"{other}\"\n"
    );
    world.put("edge.toml", routed.as_bytes());
    until("the route counts", || world.curl(&edge, "a.example", &[]) == "other");
    assert_eq!(world.curl(&edge, "b.example", &[]), "hello", "what no route is for goes where it went");
    assert!(is_alive(&mut open), "who is connected stays so");

    let broken = || sum(&edge.figures(), "bulla_intercept_edge_broken_routes", "");
    for wrong in [
        "[edge]\nupstream = \"nonsense\"\n",
        "[edge]\n[[edge.routes]]\nnames = [\"a b\"]\nupstream = \"127.0.0.1:1\"\n",
        "[edge",
        "",
    ] {
        assert_eq!(broken(), 0.0);
        world.put("edge.toml", wrong.as_bytes());
        until("the file is found broken", || broken() == 1.0);
        assert_eq!(world.curl(&edge, "a.example", &[]), "other", "{wrong}: what was stays");
        world.put("edge.toml", routed.as_bytes());
        edge.signal("HUP");
        until("it is whole again", || broken() == 0.0);
    }
    world.put("edge.toml", format!("[edge]\nupstream = \"{other}\"\n").as_bytes());
    edge.signal("HUP");
    until("all go there", || world.curl(&edge, "b.example", &[]) == "other");
    assert!(is_alive(&mut open));
    assert_eq!(edge.stop(), Some(0));
}
