//! The state machine of a managed certificate, with every legal transition.
//!
//! [`step`] is a pure function. The caller stores a transition in one transaction with its audit row and its events. Runs
//! (issuance, renewal, deployment) are jobs. The state of the certificate says what the certificate waits for; the job stores the
//! progress.

use std::fmt;

pub use store::states::ManagedState as State;

/// Status of the newest version, for transitions that end a run.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Current {
    /// No version was ever issued.
    None,
    /// The newest version is not revoked.
    Good,
    /// The newest version is revoked.
    Revoked,
}

/// Input of the state machine: an event that may change the state of a certificate, such as an approval.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Input {
    /// A run needs the approval of a second person.
    ApprovalNeeded,
    /// The run was approved and may start.
    Approved(Current),
    /// The approval was rejected or expired, and the run ends.
    Rejected(Current),
    /// The key is on an agent's host, and the agent must create a CSR.
    CsrNeeded,
    /// The order was sent to the issuer.
    Started,
    /// The issuer delivered the certificate.
    Issued {
        /// Whether there are targets to deploy to.
        has_targets: bool,
    },
    /// Every target has the new version.
    Deployed,
    /// A user or a program requested that the current version is deployed again.
    RedeployRequested,
    /// The run failed and is not retried.
    RunFailed,
    /// The run was cancelled.
    Cancelled(Current),
    /// The current version was revoked.
    Revoked,
    /// The certificate was archived.
    Archived,
    /// The certificate was restored from the archive.
    Restored(Current),
}

/// Effect that must be carried out together with a transition.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Effect {
    /// Compute and store the time of the next renewal.
    Schedule,
    /// Remove the planned renewal.
    Unschedule,
    /// Open an approval.
    OpenApproval,
    /// End the open run of the certificate.
    EndRun,
    /// Queue one deployment for each target.
    Deploy,
}

/// Error for an input that is not legal in the current state of the certificate.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("a certificate that is {} cannot be {input}", state.name().replace('_', " "))]
pub struct IllegalTransition {
    /// State before the transition.
    pub state: State,
    /// The input, which is not legal in this state.
    pub input: Input,
}

/// Returns the transition from `state` by `input`.
///
/// # Errors
/// [`IllegalTransition`] if the transition does not exist; nothing changes then.
pub fn step(state: State, input: Input) -> Result<(State, Vec<Effect>), IllegalTransition> {
    use Effect::{Deploy, EndRun, OpenApproval, Schedule, Unschedule};
    use State::{
        Active, Archived, AwaitingApproval, AwaitingCsr, Deploying, Failed, Issuing, Pending, Revoked,
    };
    let resting = matches!(state, Pending | Active | Failed | Revoked | Deploying);
    let (next, effects) = match (state, input) {
        (_, Input::ApprovalNeeded) if resting => (AwaitingApproval, vec![OpenApproval]),
        (AwaitingApproval, Input::Approved(current)) => (state_without_run(current), vec![]),
        (AwaitingApproval, Input::Rejected(current)) => (state_without_run(current), vec![EndRun, Schedule]),

        (_, Input::CsrNeeded) if resting => (AwaitingCsr, vec![]),
        (AwaitingCsr, Input::Started) => (Issuing, vec![]),
        (_, Input::Started) if resting => (Issuing, vec![]),

        (Issuing, Input::Issued { has_targets: true }) => (Deploying, vec![Schedule, Deploy]),
        (Issuing, Input::Issued { has_targets: false }) => (Active, vec![Schedule]),
        (Deploying, Input::Deployed) => (Active, vec![]),
        (Active | Failed, Input::RedeployRequested) => (Deploying, vec![Deploy]),

        (AwaitingCsr | Issuing | Deploying, Input::RunFailed) => (Failed, vec![EndRun, Schedule]),
        (AwaitingApproval | AwaitingCsr | Issuing | Deploying, Input::Cancelled(current)) => {
            (state_without_run(current), vec![EndRun, Schedule])
        }

        // A run in progress replaces the revoked version, so it continues.
        (AwaitingApproval | AwaitingCsr | Issuing, Input::Revoked) => (state, vec![]),
        (Active | Failed | Deploying, Input::Revoked) => (Revoked, vec![EndRun, Unschedule]),

        // The issuer may be about to deliver, and the issued certificate must not be lost.
        (
            Pending | Active | Failed | Revoked | AwaitingApproval | AwaitingCsr | Deploying,
            Input::Archived,
        ) => (Archived, vec![EndRun, Unschedule]),
        (Archived, Input::Restored(current)) => (state_without_run(current), vec![Schedule]),
        (_, input) => return Err(IllegalTransition { state, input }),
    };
    Ok((next, effects))
}

/// Returns the state of a certificate without an open run.
#[must_use]
pub fn state_without_run(current: Current) -> State {
    match current {
        Current::None => State::Pending,
        Current::Good => State::Active,
        Current::Revoked => State::Revoked,
    }
}

impl fmt::Display for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ApprovalNeeded => "submitted for approval",
            Self::Approved(_) => "approved",
            Self::Rejected(_) => "rejected",
            Self::CsrNeeded => "paused until its agent sends a CSR",
            Self::Started => "sent to the issuer",
            Self::Issued { .. } => "issued",
            Self::Deployed => "reported as deployed",
            Self::RedeployRequested => "deployed again",
            Self::RunFailed => "failed",
            Self::Cancelled(_) => "cancelled",
            Self::Revoked => "revoked",
            Self::Archived => "archived",
            Self::Restored(_) => "restored",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INPUTS: &[Input] = &[
        Input::ApprovalNeeded,
        Input::Approved(Current::None),
        Input::Approved(Current::Good),
        Input::Approved(Current::Revoked),
        Input::Rejected(Current::None),
        Input::Rejected(Current::Good),
        Input::Rejected(Current::Revoked),
        Input::CsrNeeded,
        Input::Started,
        Input::Issued { has_targets: true },
        Input::Issued { has_targets: false },
        Input::Deployed,
        Input::RedeployRequested,
        Input::RunFailed,
        Input::Cancelled(Current::None),
        Input::Cancelled(Current::Good),
        Input::Cancelled(Current::Revoked),
        Input::Revoked,
        Input::Archived,
        Input::Restored(Current::None),
        Input::Restored(Current::Good),
        Input::Restored(Current::Revoked),
    ];

    /// The complete graph: the legal transitions of each state, and their results. All others are rejected.
    const GRAPH: &str = "\
pending: ApprovalNeeded > awaiting_approval, CsrNeeded > awaiting_csr, Started > issuing, Archived > archived
awaiting_approval: Approved(None) > pending, Approved(Good) > active, Approved(Revoked) > revoked, Rejected(None) > pending, Rejected(Good) > active, Rejected(Revoked) > revoked, Cancelled(None) > pending, Cancelled(Good) > active, Cancelled(Revoked) > revoked, Revoked > awaiting_approval, Archived > archived
awaiting_csr: Started > issuing, RunFailed > failed, Cancelled(None) > pending, Cancelled(Good) > active, Cancelled(Revoked) > revoked, Revoked > awaiting_csr, Archived > archived
issuing: Issued { has_targets: true } > deploying, Issued { has_targets: false } > active, RunFailed > failed, Cancelled(None) > pending, Cancelled(Good) > active, Cancelled(Revoked) > revoked, Revoked > issuing
deploying: ApprovalNeeded > awaiting_approval, CsrNeeded > awaiting_csr, Started > issuing, Deployed > active, RunFailed > failed, Cancelled(None) > pending, Cancelled(Good) > active, Cancelled(Revoked) > revoked, Revoked > revoked, Archived > archived
active: ApprovalNeeded > awaiting_approval, CsrNeeded > awaiting_csr, Started > issuing, RedeployRequested > deploying, Revoked > revoked, Archived > archived
failed: ApprovalNeeded > awaiting_approval, CsrNeeded > awaiting_csr, Started > issuing, RedeployRequested > deploying, Revoked > revoked, Archived > archived
revoked: ApprovalNeeded > awaiting_approval, CsrNeeded > awaiting_csr, Started > issuing, Archived > archived
archived: Restored(None) > pending, Restored(Good) > active, Restored(Revoked) > revoked
";

    #[test]
    fn state_transitions_match_the_documented_graph() {
        let mut drawn = String::new();
        for state in State::ALL {
            let moves: Vec<String> = INPUTS
                .iter()
                .filter_map(|input| {
                    let (next, _) = step(state, *input).ok()?;
                    Some(format!("{input:?} > {}", next.name()))
                })
                .collect();
            drawn.push_str(&format!("{}: {}\n", state.name(), moves.join(", ")));
        }
        assert_eq!(drawn, GRAPH);
    }

    #[test]
    fn every_state_is_reachable_and_none_is_a_dead_end() {
        let mut reached = vec![State::Pending];
        let mut at = 0;
        while at < reached.len() {
            let next: Vec<State> =
                INPUTS.iter().filter_map(|input| step(reached[at], *input).ok()).map(|(to, _)| to).collect();
            assert!(next.iter().any(|to| *to != reached[at]), "{} is a dead end", reached[at]);
            for to in next {
                if !reached.contains(&to) {
                    reached.push(to);
                }
            }
            at += 1;
        }
        assert_eq!(reached.len(), State::ALL.len());
    }

    #[test]
    fn invalid_transition_error_names_state_and_action() {
        let error = step(State::Archived, Input::Started).unwrap_err();
        assert_eq!(error.to_string(), "a certificate that is archived cannot be sent to the issuer");
    }
}
