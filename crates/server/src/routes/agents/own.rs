//! Endpoints for agents, over mutual TLS. Only enrolment is without authentication: its token is in the body.

use agent::Agents;
use agent::work::{
    AgentJob, Enrolled, Enrolment, GeneratedCsr, HostFacts, JobResult, Renewal, WAIT_SECONDS_MAX,
};
use api::agent_work::{
    AgentTargetsView, CsrBody, EnrolledView, EnrolmentBody, FactsBody, RenewalBody, ResultBody,
};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use crate::access::{Caller, Permission};
use crate::extract::{Json, Path, Query};
use crate::problem::Problem;
use crate::routing::{Access, Api, routes};
use crate::state::Component;

/// Maximum bytes of a certificate request or of a report. Typical bodies have a few thousand bytes.
const BODY_MAX: usize = 64 * 1_024;

pub(super) fn routes() -> Api {
    let work = || Access::needs(Permission::AgentWork).body_max(BODY_MAX);
    Api::area("agents")
        .route(Access::open().body_max(BODY_MAX), routes!(enroll))
        .route(work(), routes!(renew))
        .route(work(), routes!(give_work))
        .route(work(), routes!(own_targets))
        .route(work(), routes!(take_csr))
        .route(work(), routes!(take_result))
}

fn host_facts(body: FactsBody) -> HostFacts {
    let FactsBody { version, hostname, os, arch, addresses } = body;
    HostFacts { version, hostname, os, arch, addresses }
}

fn enrolled_view(enrolled: Enrolled) -> EnrolledView {
    let Enrolled { agent, name, certificate_pem, ca_pem } = enrolled;
    EnrolledView { agent, name, certificate_pem, ca_pem }
}

/// Enrols a host as an agent.
///
/// The token can be used once. If the response is lost, the same token with the same key returns the same agent again.
#[utoipa::path(post, path = "/api/v1/agent/enroll", operation_id = "enrollAgent", request_body = EnrolmentBody,
    responses((status = 200, body = EnrolledView)))]
async fn enroll(
    Component(agents): Component<Agents>,
    Json(body): Json<EnrolmentBody>,
) -> Result<Json<EnrolledView>, Problem> {
    let EnrolmentBody { token, csr_pem, name, facts } = body;
    let request = Enrolment { token, csr_pem, name, facts: host_facts(facts) };
    let enrolled = agents.enroll(&request).await?;
    Ok(Json(enrolled_view(enrolled)))
}

/// Returns the calling agent. Its client certificate must have the key that was enrolled for this agent.
async fn agent_of(agents: &Agents, caller: &Caller) -> Result<Uuid, Problem> {
    agents.check_key(caller.id(), caller.enrolled_certificate("an agent")?).await?;
    Ok(caller.id())
}

/// Renews an agent's client certificate.
#[utoipa::path(post, path = "/api/v1/agent/renew", operation_id = "renewAgent", request_body = RenewalBody,
    responses((status = 200, body = EnrolledView)))]
async fn renew(
    Component(agents): Component<Agents>,
    caller: Caller,
    Json(body): Json<RenewalBody>,
) -> Result<Json<EnrolledView>, Problem> {
    let agent = agent_of(&agents, &caller).await?;
    let renewal = Renewal { csr_pem: body.csr_pem };
    Ok(Json(enrolled_view(agents.renew(agent, &renewal.csr_pem).await?)))
}

/// Query parameters of a poll for work.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct WaitParams {
    /// Maximum seconds to wait for work if none is available.
    #[serde(default)]
    #[param(maximum = 60)]
    wait: u32,
}

/// Jobs that an agent must run now.
#[derive(Serialize, ToSchema)]
struct AssignmentView {
    /// Jobs: each with its ID, its certificate, and its work by kind (`csr`, `deploy`).
    #[schema(value_type = Vec<Object>)]
    jobs: Vec<AgentJob>,
}

/// Returns the agent's work, and waits if none is available.
///
/// Work without a reported result is returned again after a timeout.
#[utoipa::path(get, path = "/api/v1/agent/work", operation_id = "getAgentWork", params(WaitParams, FactsBody),
    responses((status = 200, body = AssignmentView)))]
async fn give_work(
    Component(agents): Component<Agents>,
    caller: Caller,
    Query(params): Query<WaitParams>,
    Query(facts): Query<FactsBody>,
) -> Result<Json<AssignmentView>, Problem> {
    if params.wait > WAIT_SECONDS_MAX {
        return Err(Problem::bad_request(format_args!("wait must be 0 to {WAIT_SECONDS_MAX} seconds")));
    }
    let agent = agent_of(&agents, &caller).await?;
    Ok(Json(AssignmentView { jobs: agents.poll(agent, host_facts(facts), params.wait).await? }))
}

/// Lists the targets of the calling agent, for the local policy of its host.
#[utoipa::path(get, path = "/api/v1/agent/targets", operation_id = "listOwnTargets",
    responses((status = 200, body = AgentTargetsView)))]
async fn own_targets(
    Component(agents): Component<Agents>,
    caller: Caller,
) -> Result<Json<AgentTargetsView>, Problem> {
    let agent = agent_of(&agents, &caller).await?;
    let targets = agents.targets_of_agent(agent).await?;
    let views = targets.iter().map(|target| serde_json::to_value(target).map_err(Problem::internal));
    Ok(Json(AgentTargetsView { targets: views.collect::<Result<_, _>>()? }))
}

/// Submits the CSR of a job. Submitting the same CSR again has no effect.
#[utoipa::path(post, path = "/api/v1/agent/jobs/{job}/csr", operation_id = "sendAgentCsr",
    params(("job" = Uuid, Path)), request_body = CsrBody, responses((status = 204)))]
async fn take_csr(
    Component(agents): Component<Agents>,
    caller: Caller,
    Path(job): Path<Uuid>,
    Json(body): Json<CsrBody>,
) -> Result<StatusCode, Problem> {
    let agent = agent_of(&agents, &caller).await?;
    let made = GeneratedCsr { csr_pem: body.csr_pem };
    agents.accept_csr(agent, job, &made.csr_pem).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Submits the result of a job. Submitting the same result again has no effect.
#[utoipa::path(post, path = "/api/v1/agent/jobs/{job}/result", operation_id = "sendAgentResult",
    params(("job" = Uuid, Path)), request_body = ResultBody, responses((status = 204)))]
async fn take_result(
    Component(agents): Component<Agents>,
    caller: Caller,
    Path(job): Path<Uuid>,
    Json(body): Json<ResultBody>,
) -> Result<StatusCode, Problem> {
    let agent = agent_of(&agents, &caller).await?;
    let ResultBody { outcome, target, error, rollback_error, served } = body;
    let outcome = outcome.parse().map_err(Problem::unprocessable)?;
    let result = JobResult { outcome, target, error, rollback_error, served };
    agents.finished(agent, job, result).await?;
    Ok(StatusCode::NO_CONTENT)
}
