//! Owners, and the rules that assign found certificates to owners and teams.

use api::ownership::{
    AssignBody, ExplanationView, FromTagsBody, QuestionBody, RuleBody, RuleView, StepView, WhenBody,
};
use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::Value;

use super::document::DocumentCommand;
use super::job::OwnerDocument;
use super::{Run, input};
use crate::columns;
use crate::connection::{Client, Columns, Listing, Output, document_of, print_rows, read_as, show_one};
use crate::exit::Outcome;

const PATH: &str = "/api/v1/ownership-rules";

/// Commands of `bulla owner`.
#[derive(Debug, Subcommand)]
pub enum OwnerCommand {
    #[command(flatten)]
    Document(DocumentCommand<OwnerDocument>),
    /// Rules that assign found certificates to owners and teams; the first match applies
    #[command(subcommand)]
    Rule(RuleCommand),
}

/// Commands of `bulla owner rule`.
#[derive(Debug, Subcommand)]
pub enum RuleCommand {
    /// Create a rule; without conditions it applies to everything that no earlier rule matches
    #[command(visible_alias = "create")]
    Add(Box<NewRule>),
    /// List rules, in their order
    List(Listing),
    /// Show a rule
    Show {
        /// Name or id of the rule
        name: String,
        #[command(flatten)]
        show: Output,
    },
    /// Move a rule to another position
    Move {
        /// Name or id of the rule
        name: String,
        /// New position: rules are tried from the lowest position to the highest
        position: u32,
        #[command(flatten)]
        show: Output,
    },
    /// Remove a rule; certificates claimed by it are not changed
    #[command(visible_alias = "delete")]
    Remove {
        /// Name or id of the rule
        name: String,
    },
    /// Explain an assignment: which rule matches, and why earlier rules do not
    Explain(Question),
}

/// Arguments of `bulla owner rule add`.
#[derive(Args, Debug)]
pub struct NewRule {
    /// Name of the rule
    name: String,
    /// Position: rules are tried from the lowest position to the highest [default: ten after the last]
    #[arg(long, value_name = "POSITION")]
    position: Option<u32>,
    /// Pattern of the host or the server name: '*.pay.example'; * matches any characters
    #[arg(long, value_name = "PATTERN", help_heading = "Conditions (all given conditions must match)")]
    host: Option<String>,
    /// Pattern of one of the certificate's names
    #[arg(long, value_name = "PATTERN", help_heading = "Conditions (all given conditions must match)")]
    san: Option<String>,
    /// Network that contains the address, or the address
    #[arg(long, value_name = "NETWORK", help_heading = "Conditions (all given conditions must match)")]
    network: Option<String>,
    /// Pattern of the protocol (tls, smtp, aws-acm) or of the watch's group
    #[arg(long, value_name = "PATTERN", help_heading = "Conditions (all given conditions must match)")]
    source: Option<String>,
    /// Text in the issuer's name
    #[arg(long, value_name = "TEXT", help_heading = "Conditions (all given conditions must match)")]
    issuer: Option<String>,
    /// Tag of the certificate in a cloud or cluster: KEY, or KEY=PATTERN for its value
    #[arg(long, value_name = "KEY[=PATTERN]", help_heading = "Conditions (all given conditions must match)")]
    cloud_tag: Option<String>,
    /// Team to assign
    #[arg(long, value_name = "TEAM", help_heading = "Assigned values (at least one is required)")]
    team: Option<String>,
    /// Owner to assign
    #[arg(long, value_name = "OWNER", help_heading = "Assigned values (at least one is required)")]
    owner: Option<String>,
    /// Environment to assign
    #[arg(long, value_name = "ENVIRONMENT", help_heading = "Assigned values (at least one is required)")]
    environment: Option<String>,
    /// Tag to assign; may be repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = input::pair,
        help_heading = "Assigned values (at least one is required)")]
    tag: Vec<(String, String)>,
    /// Take the team from the value of this tag; the rule applies only if it finds a value to take
    #[arg(long, value_name = "KEY", help_heading = "Assigned values (at least one is required)")]
    team_from_tag: Option<String>,
    /// Take the owner from the value of this tag
    #[arg(long, value_name = "KEY", help_heading = "Assigned values (at least one is required)")]
    owner_from_tag: Option<String>,
    /// Take the environment from the value of this tag
    #[arg(long, value_name = "KEY", help_heading = "Assigned values (at least one is required)")]
    environment_from_tag: Option<String>,
    #[command(flatten)]
    show: Output,
}

impl NewRule {
    fn request(&self) -> RuleBody {
        RuleBody {
            name: self.name.clone(),
            position: self.position,
            when: WhenBody {
                host: self.host.clone(),
                name: self.san.clone(),
                network: self.network.clone(),
                source: self.source.clone(),
                issuer: self.issuer.clone(),
                tag: self.cloud_tag.clone(),
            },
            assign: AssignBody {
                team: self.team.clone(),
                owner: self.owner.clone(),
                environment: self.environment.clone(),
                tags: self.tag.iter().cloned().collect(),
            },
            from_tags: FromTagsBody {
                team: self.team_from_tag.clone(),
                owner: self.owner_from_tag.clone(),
                environment: self.environment_from_tag.clone(),
            },
        }
    }
}

/// A found certificate, real or hypothetical, to which the rules are applied. Values that are not given are unknown.
#[derive(Args, Debug)]
pub struct Question {
    /// Host: name, address or path
    host: String,
    /// The requested server name
    #[arg(long, value_name = "NAME")]
    sni: Option<String>,
    /// The address [default: HOST, if it is an address]
    #[arg(long, value_name = "ADDRESS")]
    address: Option<String>,
    /// The certificate's names
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    san: Vec<String>,
    /// The issuer's name
    #[arg(long, value_name = "TEXT", default_value = "")]
    issuer: String,
    /// Protocol or location of the certificate: tls, smtp, aws-acm
    #[arg(long, value_name = "SOURCE", default_value = "tls")]
    source: String,
    /// Group label of the watch that scans the endpoint
    #[arg(long, value_name = "GROUP", default_value = "")]
    group: String,
    /// Tag of the certificate in a cloud or cluster; may be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = input::pair)]
    cloud_tag: Vec<(String, String)>,
    #[command(flatten)]
    show: Output,
}

impl Question {
    async fn explain(&self, client: &Client) -> Outcome<()> {
        let question = QuestionBody {
            host: self.host.clone(),
            server_name: self.sni.clone().unwrap_or_default(),
            address: self.address.clone(),
            names: self.san.clone(),
            issuer: self.issuer.clone(),
            source: self.source.clone(),
            group: self.group.clone(),
            tags: self.cloud_tag.iter().cloned().collect(),
        };
        let answer = client.submit(Method::POST, &format!("{PATH}/explain"), &question).await?;
        if self.show.is_table() { self.table(&answer) } else { show_one(&answer, &self.show) }
    }

    /// Prints one row per rule, then the assignment of the last one.
    fn table(&self, answer: &Value) -> Outcome<()> {
        const STEPS: Columns = columns!(StepView: ("Position", position), ("Rule", rule), ("Matches", matches), ("Why not", why_not));
        let ExplanationView { steps, assign, .. } = read_as(answer)?;
        let steps = steps.iter().map(document_of);
        print_rows(steps.collect::<Outcome<Vec<_>>>()?, STEPS, &self.show)?;
        assign.map_or(Ok(()), |assign| show_one(&document_of(&assign)?, &self.show))
    }
}

impl Run for OwnerCommand {
    async fn run(&self, client: &Client) -> Outcome<()> {
        match self {
            Self::Document(command) => command.run(client).await,
            Self::Rule(command) => command.run(client).await,
        }
    }
}

impl Run for RuleCommand {
    async fn run(&self, client: &Client) -> Outcome<()> {
        const RULES: Columns = columns!(
            RuleView:
            ("Position", position),
            ("Name", name),
            ("When", when),
            ("Team", assign.team),
            ("Owner", assign.owner),
            ("Environment", assign.environment),
            ("Tags", assign.tags),
            ("From tags", from_tags),
        );
        let one = |name: &str| format!("{PATH}/{}", input::segment(name));
        match self {
            Self::Add(new) => show_one(&client.submit(Method::POST, PATH, &new.request()).await?, &new.show),
            Self::List(listing) => listing.print(client, PATH, &(), RULES).await,
            Self::Show { name, show } => show_one(&client.get(&one(name), &()).await?, show),
            Self::Move { name, position, show } => {
                let rule: RuleView = client.fetch(&one(name), &()).await?;
                let body = RuleBody {
                    name: rule.name,
                    position: Some(*position),
                    when: rule.when,
                    assign: rule.assign,
                    from_tags: rule.from_tags,
                };
                show_one(&client.submit(Method::PUT, &one(name), &body).await?, show)
            }
            Self::Remove { name } => client.send(Method::DELETE, &one(name), None).await.map(drop),
            Self::Explain(question) => question.explain(client).await,
        }
    }
}
