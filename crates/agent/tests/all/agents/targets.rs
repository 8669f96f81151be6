//! Tests of targets in the server's database.

use agent::client::Agent;
use agent::deploy::Target;
use agent::{AgentError, NewTarget};
use enrollment::client::JoinOptions;
use serde_json::json;

use super::server::World;
use crate::deploy::world::target;

async fn agent(world: &World) -> uuid::Uuid {
    agent_in(world, world.state()).await
}

async fn agent_in(world: &World, state: std::path::PathBuf) -> uuid::Uuid {
    let options = JoinOptions {
        server: world.url(),
        token: world.token().await.into(),
        ca_pem: Some(world.issuer.root_pem()),
        ca_sha256: None,
        name: None,
        state,
    };
    Agent::enroll(&options).await.unwrap().agent
}

fn keystore(password: &str) -> Target {
    target(json!({"type": "jks", "file": "/srv/a.jks", "password": password}))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn target_passwords_are_sealed_hidden_and_bound_to_their_agent() {
    let world = World::new().await;
    let agent = agent(&world).await;
    let new = |name: &str, target: Target| NewTarget { name: name.to_owned(), agent, target };
    let made = world.agents.create_target(new("java", keystore("open sesame")), "user:alice").await.unwrap();
    assert!(!format!("{made:?}").contains("sesame"));
    assert!(!made.row.settings.config.contains("sesame"));
    let sealed = made.row.settings.secrets.clone().unwrap();
    assert!(!sealed.windows(6).any(|window| window == b"sesame"));
    assert_eq!(world.agents.open_target(&made.row).unwrap(), keystore("open sesame"));
    // A returned configuration can be sent back without its password.
    let id = made.row.id;
    let updated = world.agents.update_target(id, 1, new("java-2", made.target), "user:alice").await.unwrap();
    assert_eq!(world.agents.open_target(&updated.row).unwrap(), keystore("open sesame"));
    let changed =
        world.agents.update_target(id, 2, new("java-2", keystore("changed it")), "user:alice").await.unwrap();
    assert_eq!(world.agents.open_target(&changed.row).unwrap(), keystore("changed it"));
    // A password is moved to another agent only if the caller sends it again.
    let other = agent_in(&world, world.state().with_file_name("other")).await;
    let moved = |target: Target| NewTarget { name: "java-2".to_owned(), agent: other, target };
    let error = world.agents.update_target(id, 3, moved(changed.target.clone()), "user:mallory").await;
    let error = error.unwrap_err().to_string();
    assert!(error.contains("agent changed") && error.contains("give the password again"), "{error}");
    let given = world.agents.update_target(id, 3, moved(keystore("changed it")), "user:alice").await.unwrap();
    assert_eq!(given.row.settings.agent, other);
    // The password is sealed for this row and does not open in another one.
    let mut moved = changed.row.clone();
    moved.id = uuid::Uuid::now_v7();
    assert!(matches!(world.agents.open_target(&moved), Err(AgentError::Sealed(_))));
    let stale = world.agents.update_target(id, 1, new("java-2", keystore("changed it")), "user:alice").await;
    assert!(matches!(stale, Err(AgentError::Changed)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn targets_are_validated_on_creation() {
    let world = World::new().await;
    let agent = agent(&world).await;
    let files = || target(json!({"type": "files", "key": "/srv/k.pem"}));
    let new = |name: &str, target: Target| NewTarget { name: name.to_owned(), agent, target };
    world.agents.create_target(new("web", files()), "user:alice").await.unwrap();
    let taken = world.agents.create_target(new("web", files()), "user:alice").await;
    assert!(matches!(taken, Err(AgentError::NameTaken(_))));
    let wrong: Target = serde_json::from_value(json!({"type": "nginx", "key": "/srv/k.pem"})).unwrap();
    for (name, target, part) in
        [("a/b", files(), "slash"), ("", files(), "bytes"), ("b", wrong, "nginx needs")]
    {
        let error =
            world.agents.create_target(new(name, target), "user:alice").await.unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
    let nobody = NewTarget { agent: uuid::Uuid::now_v7(), ..new("c", files()) };
    assert!(matches!(world.agents.create_target(nobody, "x").await, Err(AgentError::NotFound(_))));
    assert_eq!(world.agents.targets(Some(agent), None, 10).await.unwrap().rows.len(), 1);
    let id = world.agents.targets(None, None, 10).await.unwrap().rows[0].row.id;
    world.agents.delete_target(id, "user:alice").await.unwrap();
    assert!(matches!(world.agents.target(id).await, Err(AgentError::NotFound(_))));
    world.agents.retire(agent, "user:alice").await.unwrap();
    let late = world.agents.create_target(new("late", files()), "user:alice").await;
    assert!(matches!(late, Err(AgentError::Retired)));
}
