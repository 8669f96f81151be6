//! `bulla scan --liveness`: checks whether endpoints respond, not which certificates they present.
//!
//! Sessions may be resumed, and a resumed session does not transmit a certificate. Therefore no result is stored, and no
//! certificate is reported.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use cli::exit::{Exit, Outcome, Problem, chain};
use cli::printer::{Listed, Printer};
use cli::terminal::{Paint, clean};
use outbound::Deadline;
use outbound::resolve::{Families, Resolver};
use outbound::tls::{Connector, Handshake};
use scan::Trusted;
use scan::target::{Protocol, Target, Targets};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::args::ScanArgs;
use super::demo::Demo;
use super::plan::Spec;

/// Maximum number of concurrent probes per run. Each probe is one connection; more of them would not make the run faster.
const IN_FLIGHT_MAX: usize = 512;
/// Number of results printed together: few enough that the output appears without noticeable delay.
const ROWS_TOGETHER: usize = 64;

/// Maximum number of addresses of a name that are tried one after the other.
const ADDRESSES_MAX: usize = 4;

/// The result of one probe: the kind of handshake (`full` or `resumed`) and its duration, or the reason of the failure.
struct LivenessResult {
    endpoint: String,
    address: Option<IpAddr>,
    result: Result<(&'static str, Duration), String>,
}

/// The parameters that all probes of a run share.
struct LivenessProbe {
    resolver: Resolver,
    connector: Connector,
    families: Families,
    limit: Duration,
}

/// Probes every target, and prints the results during the run.
pub(super) async fn run(
    args: &ScanArgs,
    spec: &Spec,
    demo: Option<&Demo>,
    stop: &CancellationToken,
) -> Outcome<Exit> {
    let options = spec.scan_options()?;
    let resolver = match demo {
        Some(demo) => demo.resolver(&mut Trusted::trusting_none()),
        None => spec.resolver()?,
    };
    let connector = Connector::system().map_err(|error| {
        Problem::new(Exit::Machine, chain(&error)).hint("apt-get install -y ca-certificates")
    })?;
    let allowed = options.in_flight.unwrap_or(IN_FLIGHT_MAX).min(outbound::limits::descriptor_budget());
    let probe = Arc::new(LivenessProbe {
        resolver,
        connector,
        families: options.families,
        limit: options.first.handshake,
    });
    let words = demo.map_or_else(|| spec.targets.clone(), Demo::targets);
    let targets = Targets::new(words, spec.target_options()?);
    let mut printer = Printer::new(spec.settings.output.of_rows()?, args.color);
    let (give, mut take) = mpsc::channel(IN_FLIGHT_MAX);
    // Use a separate thread, because standard input blocks. The thread ends with the input, or once the receiver is dropped.
    std::thread::spawn(move || targets.into_iter().try_for_each(|target| give.blocking_send(target)));
    let (mut probes, mut rows) = (JoinSet::new(), Vec::new());
    let (mut alive, mut invalid, mut more) = (0_u64, 0_u64, true);
    while more || !probes.is_empty() {
        tokio::select! {
            target = take.recv(), if more && probes.len() < allowed.max(1) => match target {
                Some(Ok(target)) => {
                    probes.spawn(probe_target(Arc::clone(&probe), target));
                }
                Some(Err(error)) => {
                    invalid += 1;
                    eprintln!("error: {}", super::refusal::text(&error));
                }
                None => more = false,
            },
            Some(Ok(probed)) = probes.join_next() => {
                alive += u64::from(probed.result.is_ok());
                rows.push(probed);
            }
            () = stop.cancelled() => break,
        }
        if rows.len() >= ROWS_TOGETHER {
            printer.page(&rows).map_err(|error| Problem::output(&error))?;
            rows.clear();
        }
    }
    probes.shutdown().await;
    printer.page(&rows).and_then(|()| printer.end(None)).map_err(|error| Problem::output(&error))?;
    Ok(match (stop.is_cancelled(), alive, invalid) {
        (true, _, _) => Exit::Interrupted,
        (false, 1.., 0) => Exit::Ok,
        _ => Exit::Incomplete,
    })
}

async fn probe_target(probe: Arc<LivenessProbe>, target: Target) -> LivenessResult {
    let mut probed =
        LivenessResult { endpoint: target.identity(), address: None, result: Err(String::new()) };
    if target.protocol != Protocol::Tls {
        probed.result =
            Err(format!("not checked: {} does not start with a TLS handshake", target.protocol.name()));
        return probed;
    }
    let found = probe.resolver.resolve(target.host_text(), probe.families, probe.limit).await;
    let addresses = match found {
        Ok(resolution) => resolution.addresses,
        Err(error) => {
            probed.result = Err(chain(&error));
            return probed;
        }
    };
    probed.result = Err("no address".into());
    // One responding address is enough, because the probe is about the name.
    for address in addresses.into_iter().take(ADDRESSES_MAX) {
        probed.address = Some(address);
        let socket_address = SocketAddr::new(address, target.port);
        let deadline = Deadline::within(probe.limit);
        let probe_result = probe.connector.liveness(socket_address, target.expected_name(), deadline).await;
        probed.result = probe_result.map_err(|error| chain(&error)).map(|alive| {
            let handshake = match alive.handshake {
                Handshake::Full => "full",
                Handshake::Resumed => "resumed",
            };
            (handshake, alive.elapsed)
        });
        if probed.result.is_ok() {
            break;
        }
    }
    probed
}

impl LivenessResult {
    fn word(&self) -> &'static str {
        if self.result.is_ok() { "alive" } else { "no answer" }
    }

    fn parts(&self) -> (&'static str, Option<u64>, &str) {
        match &self.result {
            Ok((handshake, elapsed)) => (handshake, u64::try_from(elapsed.as_micros()).ok(), ""),
            Err(why) => ("", None, why),
        }
    }
}

impl Listed for LivenessResult {
    const TABLE: &'static [&'static str] =
        &["LIVENESS", "ENDPOINT", "ADDRESS", "HANDSHAKE", "TIME MS", "WHY (no certificate was judged)"];
    const CSV: &'static [&'static str] =
        &["liveness", "endpoint", "address", "handshake", "handshake_us", "error"];

    fn cells(&self, paint: Paint) -> Vec<comfy_table::Cell> {
        let (handshake, elapsed_us, why) = self.parts();
        vec![
            paint.cell(if self.result.is_ok() { "ok" } else { "no answer" }, self.word()),
            paint.cell("", &clean(&self.endpoint)),
            paint.cell("faint", &self.address.map(|a| a.to_string()).unwrap_or_default()),
            paint.cell("", handshake),
            paint.cell("", &elapsed_us.map(|us| format!("{:.1}", us as f64 / 1e3)).unwrap_or_default()),
            paint.cell("", &clean(why)),
        ]
    }

    fn fields(&self) -> Vec<String> {
        let (handshake, elapsed_us, why) = self.parts();
        vec![
            self.word().to_owned(),
            self.endpoint.clone(),
            self.address.map(|a| a.to_string()).unwrap_or_default(),
            handshake.to_owned(),
            elapsed_us.map(|us| us.to_string()).unwrap_or_default(),
            why.to_owned(),
        ]
    }

    fn json(&self) -> Value {
        let (handshake, elapsed_us, why) = self.parts();
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        json!({
            "type": "liveness",
            "alive": self.result.is_ok(),
            "endpoint": self.endpoint,
            "address": self.address,
            "handshake": some(handshake),
            "handshake_us": elapsed_us,
            "error": some(why),
        })
    }
}
