//! Hooks of the proxy: services in Python and Go with the published definitions of Envoy's protocols, and their configuration.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use testbed::until_blocking;

use crate::proxy_gateway::{SECRET, World};
use crate::world::describe;

const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/examples/hooks");
const CARD: &str = "4111 1111 1111 1111";

/// A running service, which ends with the test.
struct Service {
    process: Child,
    address: String,
}

impl Service {
    fn start(command: &mut Command) -> Self {
        let program = command.get_program().to_owned();
        let mut process = command
            .arg("127.0.0.1:0")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{program:?} is installed by .ci/interop hooks ({error})"));
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().rsplit(' ').next().unwrap().to_owned();
        Self { process, address }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Returns the configuration with an audit log and these hooks. Agents may `POST`, too.
fn configuration(world: &World, hooks: &str) -> String {
    let text = world.audited().replacen("method = [\"GET\"]", "method = [\"GET\", \"POST\"]", 1);
    format!("{text}{hooks}")
}

fn hook(name: &str, protocol: &str, address: &str, more: &str) -> String {
    format!(
        "[[proxy.hooks]]\nname = \"{name}\"\nprotocol = \"{protocol}\"\nurl = \"http://{address}\"\n{more}\n"
    )
}

#[test]
#[ignore = "needs Python with Envoy's definitions: .ci/interop hooks"]
fn python_example_refuses_private_keys_and_masks_card_numbers() {
    let (world, script) = (World::new(), format!("{EXAMPLES}/python/hook.py"));
    let service = Service::start(Command::new("python-hooks").arg(script));
    for protocol in ["ext_authz", "ext_proc"] {
        let (text, address) = ("request_body = true", &service.address);
        let cards = hook("cards", "ext_proc", address, "response_body = true");
        let text = configuration(&world, &(hook("keys", protocol, address, text) + &cards));
        let proxy = world.start(&text);
        let card = format!("X-Card: {CARD}");
        let sent = world.curl(&proxy, "ci", &["-H", &card, &world.url("/repos/o")]);
        sent.is_sent();
        assert!(sent.body.contains("x-checked-for: ci") && sent.body.contains("[card]"), "{}", sent.body);
        // The server echoes the injected credential. It is masked before a hook gets the response.
        assert!(!sent.body.contains(CARD) && !sent.body.contains(SECRET), "{}", sent.body);
        let key = std::fs::read_to_string(world.fixture.path("up.key")).unwrap();
        let refused = world.curl(&proxy, "ci", &["--data-binary", &key, &world.url("/repos/o")]);
        assert_eq!(refused.status, "403", "{}", describe(&refused.output));
        assert!(refused.body.contains("contains a private key"), "{}", refused.body);
        drop(proxy);
    }
    let audit = std::fs::read_to_string(world.fixture.path("audit.jsonl")).unwrap();
    let refused = "\"hooks\":[{\"decision\":\"reply\",\"hook\":\"keys\"}]";
    assert_eq!(audit.matches(refused).count(), 2, "{audit}");
    assert!(audit.contains("{\"decision\":\"change\",\"hook\":\"cards\"}"), "{audit}");
    assert_eq!(world.seen.lock().unwrap().len(), 2, "a refused request is not sent");
    let verified = world.verify();
    assert!(verified.status.success(), "{}", describe(&verified));
}

#[test]
#[ignore = "needs the example in Go: .ci/interop hooks"]
fn go_example_refuses_private_keys() {
    let world = World::new();
    let service = Service::start(&mut Command::new("hook-go"));
    let text = configuration(&world, &hook("keys", "ext_authz", &service.address, "request_body = true"));
    let proxy = world.start(&text);
    let sent = world.curl(&proxy, "ci", &[&world.url("/repos/o")]);
    assert!(sent.is_sent().body.contains("x-checked-for: ci"), "{}", sent.body);
    let key = std::fs::read_to_string(world.fixture.path("up.key")).unwrap();
    let refused = world.curl(&proxy, "ci", &["--data-binary", &key, &world.url("/repos/o")]);
    assert!(refused.status == "403" && refused.body.contains("contains a private key"), "{}", refused.body);
    // Without the service, nothing is sent.
    drop(service);
    let refused = world.curl(&proxy, "ci", &[&world.url("/repos/o")]).is_refused("503");
    assert_eq!(refused["reason"], "hook", "{refused}");
    assert_eq!(world.seen.lock().unwrap().len(), 1);
}

#[test]
fn hooks_are_checked_at_the_start_and_stay_until_a_restart() {
    let world = World::new();
    let nowhere = "127.0.0.1:1";
    for (wrong, wanted) in [
        (hook("a", "ext_authz", nowhere, "response_body = true"), "ext_authz gets no responses"),
        (hook("a", "ext_authz", nowhere, "timeout_ms = 5"), "timeout_ms"),
        (
            hook("a", "ext_authz", nowhere, "") + &hook("a", "ext_proc", nowhere, ""),
            "another hook has this name",
        ),
        (hook("a", "ext_authz", "hooks.example:80", ""), "must use https"),
        (hook("a", "thrift", nowhere, ""), "unknown variant `thrift`"),
    ] {
        std::fs::write(world.fixture.path("bulla.toml"), configuration(&world, &wrong)).unwrap();
        let mut command = crate::proxy::proxy_command(&world.fixture);
        let output = command.args(["--config", "bulla.toml"]).output().unwrap();
        assert!(
            !output.status.success() && describe(&output).contains(wanted),
            "{wanted}: {}",
            describe(&output)
        );
    }
    let own = |more: &str| configuration(&world, &hook("guard", "ext_authz", nowhere, more));
    let proxy = world.start(&own(""));
    let refused = world.curl(&proxy, "ci", &[&world.url("/repos/o")]).is_refused("503");
    assert!(refused["detail"].as_str().unwrap().contains("the hook guard made no decision"), "{refused}");
    // A reload that would open the proxy changes nothing.
    world.change(&proxy, &own("on_error = \"allow\""));
    until_blocking("the file is refused", || {
        crate::proxy_gateway::figures(&proxy).contains("bulla_intercept_proxy_rules_outdated 1")
    });
    world.curl(&proxy, "ci", &[&world.url("/repos/o")]).is_refused("503");
    assert!(
        crate::proxy_gateway::figures(&proxy)
            .contains("bulla_intercept_proxy_hook_decisions_total{hook=\"guard\",outcome=\"error\"} 2")
    );
    assert_eq!(world.seen.lock().unwrap().len(), 0);
}
