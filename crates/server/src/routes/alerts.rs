//! Alerts, who is told of them, and messages that did not arrive.

use alerts::{AlertError, Alerts, ChannelView, NewChannel, Rule, Settings, Severity, Silence};
use axum::extract::State as With;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use store::Store;
use store::StoreError;
use store::alerts::{AlertDeliveryRow, AlertDocument, AlertRow};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use crate::access::{Caller, Permission};
use crate::api::{Api, routes};
use crate::conditional::{IfMatch, Revision};
use crate::extract::{Json, Path, Query};
use crate::paging::{Listing, Paging, PagingParams};
use crate::problem::Problem;
use crate::state::Component;
use crate::time::{parsed, shown};

pub(crate) fn routes() -> Api {
    Api::area("alerts")
        .route(Permission::AlertRead, routes!(list))
        .route(Permission::AlertRead, routes!(get_one))
        .route(Permission::AlertManage, routes!(acknowledge))
        .route(Permission::AlertManage, routes!(resolve))
        .route(Permission::AlertRead, routes!(list_deliveries))
        .route(Permission::AlertManage, routes!(requeue))
        .route(Permission::AlertRead, routes!(list_channels))
        .route(Permission::AlertManage, routes!(create_channel))
        .route(Permission::AlertRead, routes!(get_channel))
        .route(Permission::AlertManage, routes!(update_channel))
        .route(Permission::AlertManage, routes!(delete_channel))
        .route(Permission::AlertManage, routes!(test_channel))
        .route(Permission::AlertRead, routes!(list_rules))
        .route(Permission::AlertManage, routes!(create_rule))
        .route(Permission::AlertRead, routes!(get_rule))
        .route(Permission::AlertManage, routes!(put_rule))
        .route(Permission::AlertManage, routes!(delete_rule))
        .route(Permission::AlertRead, routes!(list_silences))
        .route(Permission::AlertManage, routes!(create_silence))
        .route(Permission::AlertManage, routes!(delete_silence))
        .route(Permission::AlertRead, routes!(get_settings))
        .route(Permission::AlertManage, routes!(put_settings))
}

impl From<AlertError> for Problem {
    fn from(error: AlertError) -> Self {
        match error {
            AlertError::Store(error) => error.into(),
            AlertError::Channel(error) => Self::unprocessable(error),
            AlertError::Unknown(what) => Self::not_found(what),
            AlertError::Invalid(why) => Self::unprocessable(why),
            AlertError::Sealed(_) => Self::conflict(error),
        }
    }
}

/// An alert.
#[derive(Serialize, ToSchema)]
struct AlertView {
    /// Its identity.
    id: Uuid,
    /// What kind: `certificate.expiring`, `certificate.failed`, …
    kind: String,
    /// Of what: `certificate/UUID`.
    subject: String,
    /// info, low, medium, high or critical.
    severity: &'static str,
    /// One line.
    title: String,
    /// open, acknowledged or resolved.
    state: &'static str,
    /// Owner, team, environment, tags and so on.
    #[schema(value_type = Object)]
    attributes: Value,
    /// The silence that keeps it quiet.
    silenced_by: Option<Uuid>,
    /// The first time.
    first_at: String,
    /// The last time.
    last_at: String,
    /// How often.
    count: i64,
    /// Who takes care.
    acknowledged_by: Option<String>,
    /// Since when.
    acknowledged_at: Option<String>,
    /// When it was over.
    resolved_at: Option<String>,
    /// Messages about it; absent in listings.
    #[serde(skip_serializing_if = "Option::is_none")]
    deliveries: Option<Vec<DeliveryView>>,
}

const STATES: [&str; 3] = ["open", "acknowledged", "resolved"];

impl AlertView {
    fn of(row: AlertRow) -> Self {
        Self {
            id: row.id,
            severity: Severity::from_stored(row.severity).word(),
            state: STATES[usize::try_from(row.state).unwrap_or(0).min(2)],
            attributes: serde_json::from_str(&row.attributes).unwrap_or_default(),
            kind: row.kind,
            subject: row.subject,
            title: row.title,
            silenced_by: row.silenced_by,
            first_at: shown(row.first_at_us),
            last_at: shown(row.last_at_us),
            count: row.count,
            acknowledged_by: row.acknowledged_by,
            acknowledged_at: row.acknowledged_at_us.map(shown),
            resolved_at: row.resolved_at_us.map(shown),
            deliveries: None,
        }
    }
}

/// A message to a channel.
#[derive(Serialize, ToSchema)]
struct DeliveryView {
    /// Its identity; receivers get it with every try.
    id: Uuid,
    /// The channel.
    channel: Uuid,
    /// raised, escalated or resolved.
    reason: String,
    /// waiting, sent, dead or held (for the digest).
    state: &'static str,
    /// Tries so far.
    attempts: i64,
    /// The next try, while it waits.
    next_at: Option<String>,
    /// Why the last try failed.
    last_error: Option<String>,
    /// When it was made.
    created_at: String,
    /// When it was sent or given up.
    done_at: Option<String>,
}

const DELIVERY_STATES: [&str; 4] = ["waiting", "sent", "dead", "held"];

impl DeliveryView {
    fn of(row: AlertDeliveryRow) -> Self {
        Self {
            id: row.id,
            channel: row.channel,
            reason: row.reason,
            state: DELIVERY_STATES[usize::try_from(row.state).unwrap_or(0).min(3)],
            attempts: row.attempts,
            next_at: (row.state == 0).then(|| shown(row.next_at_us)),
            last_error: row.last_error,
            created_at: shown(row.created_at_us),
            done_at: row.done_at_us.map(shown),
        }
    }
}

fn word_of(words: &[&str], given: Option<&str>) -> Result<i64, Problem> {
    let given = given.unwrap_or(words[0]);
    let place = words.iter().position(|word| *word == given);
    let place =
        place.ok_or_else(|| Problem::bad_request(format_args!("state is one of {}", words.join(", "))))?;
    Ok(place as i64)
}

/// Which state.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct StateParam {
    /// Alerts: open (the default), acknowledged, resolved. Messages: waiting (the default), sent, dead, held.
    state: Option<String>,
}

/// Lists alerts, the latest first.
#[utoipa::path(get, path = "/api/v1/alerts", operation_id = "listAlerts", params(PagingParams, StateParam),
    responses((status = 200, body = Listing<AlertView>)))]
async fn list(
    With(store): With<Store>,
    Query(of): Query<StateParam>,
    paging: Paging,
) -> Result<Json<Listing<AlertView>>, Problem> {
    let wanted = word_of(&STATES, of.state.as_deref())?;
    let page = store.alerts().page(wanted, paging.after.as_ref(), paging.limit).await?;
    Ok(Json(Listing::of(page, AlertView::of)))
}

/// Shows an alert with its messages.
#[utoipa::path(get, path = "/api/v1/alerts/{id}", operation_id = "getAlert", params(("id" = Uuid, Path)),
    responses((status = 200, body = AlertView)))]
async fn get_one(With(store): With<Store>, Path(id): Path<Uuid>) -> Result<Json<AlertView>, Problem> {
    let alert =
        store.alerts().get(id).await?.ok_or_else(|| Problem::not_found(format_args!("alert {id}")))?;
    let deliveries = store.alerts().deliveries_of(alert.row).await?;
    let deliveries = deliveries.into_iter().map(DeliveryView::of).collect();
    Ok(Json(AlertView { deliveries: Some(deliveries), ..AlertView::of(alert) }))
}

/// Takes care of an alert: it is not escalated.
#[utoipa::path(post, path = "/api/v1/alerts/{id}/acknowledge", operation_id = "acknowledgeAlert",
    params(("id" = Uuid, Path)), responses((status = 204)))]
async fn acknowledge(
    Component(alerts): Component<Alerts>,
    caller: Caller,
    Path(id): Path<Uuid>,
) -> Result<StatusCode, Problem> {
    alerts.acknowledge(id, caller.actor()).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Ends an alert by hand.
#[utoipa::path(post, path = "/api/v1/alerts/{id}/resolve", operation_id = "resolveAlert",
    params(("id" = Uuid, Path)), responses((status = 204)))]
async fn resolve(
    Component(alerts): Component<Alerts>,
    caller: Caller,
    Path(id): Path<Uuid>,
) -> Result<StatusCode, Problem> {
    alerts.resolve(id, caller.actor()).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Lists messages by state, the latest first; `dead` are those that were given up.
#[utoipa::path(get, path = "/api/v1/alert-deliveries", operation_id = "listAlertDeliveries",
    params(PagingParams, StateParam), responses((status = 200, body = Listing<DeliveryView>)))]
async fn list_deliveries(
    With(store): With<Store>,
    Query(of): Query<StateParam>,
    paging: Paging,
) -> Result<Json<Listing<DeliveryView>>, Problem> {
    let wanted = word_of(&DELIVERY_STATES, of.state.as_deref())?;
    let page = store.alerts().deliveries(wanted, paging.after.as_ref(), paging.limit).await?;
    Ok(Json(Listing::of(page, DeliveryView::of)))
}

/// Tries a message again that was given up.
#[utoipa::path(post, path = "/api/v1/alert-deliveries/{id}/requeue", operation_id = "requeueAlertDelivery",
    params(("id" = Uuid, Path)), responses((status = 204)))]
async fn requeue(
    Component(alerts): Component<Alerts>,
    caller: Caller,
    Path(id): Path<Uuid>,
) -> Result<StatusCode, Problem> {
    alerts.requeue(id, caller.actor()).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// A channel, without its secrets.
#[derive(Serialize, ToSchema)]
struct ChannelDocument {
    /// Its identity.
    id: Uuid,
    /// Unique.
    name: String,
    /// webhook, slack, teams, pagerduty, opsgenie or smtp.
    kind: String,
    /// Its configuration without secrets; null when it cannot be opened.
    #[schema(value_type = Object)]
    config: Value,
    /// Whether messages go there.
    enabled: bool,
    /// The last message it took.
    last_success_at: Option<String>,
    /// The last failure.
    last_error_at: Option<String>,
    /// That failure; absent once a message was taken again.
    last_error: Option<String>,
}

impl ChannelDocument {
    fn of(view: ChannelView) -> Revision<Self> {
        Revision(view.row.revision, Self::plain(view))
    }

    fn plain(view: ChannelView) -> Self {
        let ChannelView { row, config } = view;
        Self {
            id: row.id,
            name: row.name,
            kind: row.kind,
            config,
            enabled: row.enabled,
            last_success_at: row.last_success_at_us.map(shown),
            last_error_at: row.last_error_at_us.map(shown),
            last_error: row.last_error,
        }
    }
}

/// A channel to make, or what one shall be.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct ChannelBody {
    /// Unique.
    #[schema(example = "on-call", min_length = 1, max_length = 128)]
    name: String,
    /// `{"type": "webhook", "url": …, "secret": …}` and so on: see the documentation of alerts.
    #[schema(value_type = Object)]
    config: Value,
    /// Whether messages go there.
    #[serde(default = "yes")]
    enabled: bool,
}

fn yes() -> bool {
    true
}

impl ChannelBody {
    fn checked(self) -> Result<NewChannel, Problem> {
        Ok(NewChannel { name: name(self.name)?, config: self.config, enabled: self.enabled })
    }
}

/// Characters of a name.
const NAME_MAX: usize = 128;

fn name(text: String) -> Result<String, Problem> {
    let good =
        !text.trim().is_empty() && text.chars().count() <= NAME_MAX && !text.contains(char::is_control);
    good.then_some(text).ok_or_else(|| {
        Problem::unprocessable(format_args!("a name has 1 to {NAME_MAX} characters that print"))
    })
}

/// Lists the channels.
#[utoipa::path(get, path = "/api/v1/alert-channels", operation_id = "listAlertChannels",
    responses((status = 200, body = Listing<ChannelDocument>)))]
async fn list_channels(
    Component(alerts): Component<Alerts>,
) -> Result<Json<Listing<ChannelDocument>>, Problem> {
    let all = alerts.channels().await?;
    Ok(Json(Listing::whole(all.into_iter().map(ChannelDocument::plain).collect())))
}

/// Makes a channel.
#[utoipa::path(post, path = "/api/v1/alert-channels", operation_id = "createAlertChannel",
    request_body = ChannelBody, responses((status = 201, body = ChannelDocument)))]
async fn create_channel(
    Component(alerts): Component<Alerts>,
    caller: Caller,
    Json(body): Json<ChannelBody>,
) -> Result<(StatusCode, Revision<ChannelDocument>), Problem> {
    let made = alerts.put_channel(None, body.checked()?, caller.actor()).await;
    Ok((StatusCode::CREATED, ChannelDocument::of(made.map_err(taken)?)))
}

fn taken(error: AlertError) -> Problem {
    match error {
        AlertError::Store(StoreError::Conflict { .. }) => {
            Problem::conflict("another has this name: choose one")
        }
        other => other.into(),
    }
}

/// Shows a channel.
#[utoipa::path(get, path = "/api/v1/alert-channels/{id}", operation_id = "getAlertChannel",
    params(("id" = Uuid, Path)), responses((status = 200, body = ChannelDocument)))]
async fn get_channel(
    Component(alerts): Component<Alerts>,
    Path(id): Path<Uuid>,
) -> Result<Revision<ChannelDocument>, Problem> {
    Ok(ChannelDocument::of(alerts.channel(id).await?))
}

/// Changes a channel; its secrets are to be given again.
#[utoipa::path(put, path = "/api/v1/alert-channels/{id}", operation_id = "updateAlertChannel",
    params(("id" = Uuid, Path)), request_body = ChannelBody, responses((status = 200, body = ChannelDocument)))]
async fn update_channel(
    Component(alerts): Component<Alerts>,
    caller: Caller,
    Path(id): Path<Uuid>,
    if_match: IfMatch,
    Json(body): Json<ChannelBody>,
) -> Result<Revision<ChannelDocument>, Problem> {
    let before = alerts.channel(id).await?.row.revision;
    if_match.check(before)?;
    let changed = alerts.put_channel(Some((id, before)), body.checked()?, caller.actor()).await;
    Ok(ChannelDocument::of(changed.map_err(taken)?))
}

/// Removes a channel. Messages still waiting for it are given up, and say so.
#[utoipa::path(delete, path = "/api/v1/alert-channels/{id}", operation_id = "deleteAlertChannel",
    params(("id" = Uuid, Path)), responses((status = 204)))]
async fn delete_channel(
    Component(alerts): Component<Alerts>,
    caller: Caller,
    Path(id): Path<Uuid>,
    if_match: IfMatch,
) -> Result<StatusCode, Problem> {
    if_match.check(alerts.channel(id).await?.row.revision)?;
    alerts.delete_channel(id, caller.actor()).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Sends a test message to a channel, once, and says whether it was taken.
#[utoipa::path(post, path = "/api/v1/alert-channels/{id}/test", operation_id = "testAlertChannel",
    params(("id" = Uuid, Path)), responses((status = 204)))]
async fn test_channel(
    Component(alerts): Component<Alerts>,
    Path(id): Path<Uuid>,
) -> Result<StatusCode, Problem> {
    alerts.test_channel(id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// A rule.
#[derive(Serialize, ToSchema)]
struct RuleView {
    /// Its identity.
    id: Uuid,
    /// Unique.
    name: String,
    /// `when`, `channels`, `escalate`, `digest`.
    #[schema(value_type = Object)]
    rule: Value,
    /// Who changed it last.
    updated_by: String,
    /// When.
    updated_at: String,
}

impl RuleView {
    fn of(row: AlertDocument) -> Self {
        Self {
            id: row.id,
            name: row.name,
            rule: serde_json::from_str(&row.body).unwrap_or_default(),
            updated_by: row.updated_by,
            updated_at: shown(row.updated_at_us),
        }
    }
}

/// A rule to make, or what one shall be.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct RuleBody {
    /// Unique.
    name: String,
    /// `when` (kinds, teams, owners, environments, tags, min_severity …), `channels`, `escalate`, `digest`.
    #[schema(value_type = Object)]
    rule: Rule,
}

/// Something made.
#[derive(Serialize, ToSchema)]
struct Made {
    /// Its identity.
    id: Uuid,
}

/// Lists the rules.
#[utoipa::path(get, path = "/api/v1/alert-rules", operation_id = "listAlertRules",
    responses((status = 200, body = Listing<RuleView>)))]
async fn list_rules(Component(alerts): Component<Alerts>) -> Result<Json<Listing<RuleView>>, Problem> {
    let all = alerts.rules().await?;
    Ok(Json(Listing::whole(all.into_iter().map(RuleView::of).collect())))
}

/// Makes a rule.
#[utoipa::path(post, path = "/api/v1/alert-rules", operation_id = "createAlertRule", request_body = RuleBody,
    responses((status = 201, body = Made)))]
async fn create_rule(
    Component(alerts): Component<Alerts>,
    caller: Caller,
    Json(body): Json<RuleBody>,
) -> Result<(StatusCode, Json<Made>), Problem> {
    let name = name(body.name)?;
    let id = alerts.put_rule(None, &name, &body.rule, caller.actor()).await.map_err(taken)?;
    Ok((StatusCode::CREATED, Json(Made { id })))
}

/// Shows a rule.
#[utoipa::path(get, path = "/api/v1/alert-rules/{id}", operation_id = "getAlertRule", params(("id" = Uuid, Path)),
    responses((status = 200, body = RuleView)))]
async fn get_rule(
    Component(alerts): Component<Alerts>,
    Path(id): Path<Uuid>,
) -> Result<Json<RuleView>, Problem> {
    let found = alerts.rules().await?.into_iter().find(|rule| rule.id == id);
    found.map(RuleView::of).map(Json).ok_or_else(|| Problem::not_found(format_args!("rule {id}")))
}

/// Changes a rule.
#[utoipa::path(put, path = "/api/v1/alert-rules/{id}", operation_id = "updateAlertRule",
    params(("id" = Uuid, Path)), request_body = RuleBody, responses((status = 200, body = Made)))]
async fn put_rule(
    Component(alerts): Component<Alerts>,
    caller: Caller,
    Path(id): Path<Uuid>,
    Json(body): Json<RuleBody>,
) -> Result<Json<Made>, Problem> {
    if !alerts.rules().await?.iter().any(|rule| rule.id == id) {
        return Err(Problem::not_found(format_args!("rule {id}")));
    }
    let name = name(body.name)?;
    alerts.put_rule(Some(id), &name, &body.rule, caller.actor()).await.map_err(taken)?;
    Ok(Json(Made { id }))
}

/// Removes a rule.
#[utoipa::path(delete, path = "/api/v1/alert-rules/{id}", operation_id = "deleteAlertRule",
    params(("id" = Uuid, Path)), responses((status = 204)))]
async fn delete_rule(
    Component(alerts): Component<Alerts>,
    caller: Caller,
    Path(id): Path<Uuid>,
) -> Result<StatusCode, Problem> {
    alerts.delete_document("rule", id, caller.actor()).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// A silence to make.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct SilenceBody {
    /// Which alerts: as in rules.
    #[schema(value_type = Object)]
    when: alerts::Matcher,
    /// From, RFC 3339; now when absent.
    from: Option<String>,
    /// Until, RFC 3339.
    until: String,
    /// Why.
    reason: String,
}

/// Lists the silences.
#[utoipa::path(get, path = "/api/v1/alert-silences", operation_id = "listAlertSilences",
    responses((status = 200, body = Listing<RuleView>)))]
async fn list_silences(Component(alerts): Component<Alerts>) -> Result<Json<Listing<RuleView>>, Problem> {
    let all = alerts.silences().await?;
    Ok(Json(Listing::whole(all.into_iter().map(RuleView::of).collect())))
}

/// Makes a silence: alerts that match are raised and listed, and nobody is told.
#[utoipa::path(post, path = "/api/v1/alert-silences", operation_id = "createAlertSilence",
    request_body = SilenceBody, responses((status = 201, body = Made)))]
async fn create_silence(
    Component(alerts): Component<Alerts>,
    caller: Caller,
    Json(body): Json<SilenceBody>,
) -> Result<(StatusCode, Json<Made>), Problem> {
    let silence = Silence {
        when: body.when,
        from_us: body.from.as_deref().map(parsed).transpose()?.unwrap_or(0),
        until_us: parsed(&body.until)?,
        reason: body.reason,
    };
    let id = alerts.put_silence(&silence, caller.actor()).await?;
    Ok((StatusCode::CREATED, Json(Made { id })))
}

/// Ends a silence.
#[utoipa::path(delete, path = "/api/v1/alert-silences/{id}", operation_id = "deleteAlertSilence",
    params(("id" = Uuid, Path)), responses((status = 204)))]
async fn delete_silence(
    Component(alerts): Component<Alerts>,
    caller: Caller,
    Path(id): Path<Uuid>,
) -> Result<StatusCode, Problem> {
    alerts.delete_document("silence", id, caller.actor()).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Shows the settings: thresholds, the digest's hour, how long alerts are kept.
#[utoipa::path(get, path = "/api/v1/alert-settings", operation_id = "getAlertSettings",
    responses((status = 200, body = Object)))]
async fn get_settings(Component(alerts): Component<Alerts>) -> Result<Json<Settings>, Problem> {
    Ok(Json(alerts.settings().await?))
}

/// Changes the settings.
#[utoipa::path(put, path = "/api/v1/alert-settings", operation_id = "updateAlertSettings",
    request_body = Object, responses((status = 200, body = Object)))]
async fn put_settings(
    Component(alerts): Component<Alerts>,
    caller: Caller,
    Json(settings): Json<Settings>,
) -> Result<Json<Settings>, Problem> {
    alerts.put_settings(settings.clone(), caller.actor()).await?;
    Ok(Json(settings))
}
