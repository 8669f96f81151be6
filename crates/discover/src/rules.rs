//! `bulla rules`: explains findings.

use clap::Args;
use cli::exit::{Exit, Outcome, Problem};
use cli::format::TableOrJson;
use cli::terminal::{Colour, Paint, table, width};
use x509::Rule;

/// Arguments of `bulla rules`.
#[derive(Args, Debug)]
pub struct RulesArgs {
    /// The code of one rule, to show all its details: certificate.expired
    code: Option<String>,
    #[command(flatten)]
    format: TableOrJson,
    /// When to use colour
    #[arg(long, value_enum, value_name = "WHEN", default_value = "auto")]
    color: Colour,
}

/// Returns all rules, those for certificates first.
pub fn all() -> impl Iterator<Item = &'static Rule> {
    x509::lint::RULES.iter().chain(scan::rules::RULES).copied()
}

/// Lists the rules, or explains one.
pub fn run(args: &RulesArgs) -> Outcome<Exit> {
    let paint = Paint(args.color.applies_to_stdout());
    let is_json = args.format.is_json()?;
    let text = match &args.code {
        Some(code) => {
            let rule = all().find(|rule| rule.code == code).ok_or_else(|| unknown(code))?;
            if is_json { json(&[rule]) } else { explain(rule, paint) }
        }
        None if is_json => json(&all().collect::<Vec<_>>()),
        None => list(paint),
    };
    cli::exit::print(&text)?;
    Ok(Exit::Ok)
}

fn unknown(code: &str) -> Problem {
    let near: Vec<_> = all().map(|rule| rule.code).filter(|known| known.contains(code)).collect();
    let hint = match near[..] {
        [] => "`bulla rules` lists every code".to_owned(),
        _ => format!("did you mean {}?", near.join(", ")),
    };
    Problem::usage(format_args!("no rule has the code {code:?}")).hint(hint)
}

fn list(paint: Paint) -> String {
    let mut shown = table(&["CODE", "SEVERITY", "WHAT", "SOURCE"], paint, width());
    for rule in all() {
        let severity = rule.severity.name();
        shown.add_row(vec![
            paint.cell("", rule.code),
            paint.cell(severity, severity),
            paint.cell("", rule.title),
            paint.cell("faint", rule.source),
        ]);
    }
    shown.trim_fmt()
}

fn explain(rule: &Rule, paint: Paint) -> String {
    format!(
        "{}  {}\n\n{}\n\n{}  {}\n{}  {}",
        paint.bold(rule.code),
        paint.state(rule.severity.name(), rule.severity.name()),
        rule.title,
        paint.faint("do    "),
        rule.advice,
        paint.faint("source"),
        rule.source,
    )
}

fn json(rules: &[&Rule]) -> String {
    let values: Vec<_> = rules
        .iter()
        .map(|rule| {
            serde_json::json!({
                "code": rule.code,
                "severity": rule.severity.name(),
                "title": rule.title,
                "source": rule.source,
                "advice": rule.advice,
            })
        })
        .collect();
    serde_json::to_string_pretty(&values).unwrap_or_default()
}
