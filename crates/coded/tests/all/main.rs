//! Tests of the code that the macro generates.

use coded::{Coded, Named, coded, named};

coded! {
    /// State of a job. The codes have gaps and do not start at 0.
    #[derive(Default)]
    pub enum State: "job state" {
        /// Waits for approval.
        #[default]
        AwaitingApproval = -1 => "awaiting_approval",
        /// Is running.
        Running = 3 => "running",
        /// Has finished.
        Done = 8 => "done",
    }
}

named! {
    enum Reason: "revocation reason" in any spelling {
        KeyCompromise => "keyCompromise",
        Superseded => "superseded",
    }
}

named! {
    enum Kind: "credential type" in any case {
        Value => "value",
    }
}

#[test]
fn codes_and_names_roundtrip_and_unknown_ones_are_rejected() {
    for state in State::ALL {
        assert_eq!(State::from_code(state.code()), Some(state));
        assert_eq!(state.name().parse(), Ok(state));
        assert_eq!(serde_json::to_string(&state).unwrap(), format!("{:?}", state.name()));
        assert_eq!(serde_json::from_str::<State>(&format!("{:?}", state.name())).unwrap(), state);
        assert_eq!(state.to_string(), state.name());
    }
    assert_eq!(State::ALL.map(State::code), [-1, 3, 8]);
    assert_eq!(State::default(), State::AwaitingApproval);
    for unknown in [-2, 0, 1, 4, 9, i64::MAX] {
        assert_eq!(State::from_code(unknown), None, "{unknown}");
    }
}

#[test]
fn codes_are_usable_in_constants() {
    const DONE: i64 = State::Done.code();
    const FOUND: Option<State> = State::from_code(DONE);
    const NAME: &str = State::Done.name();
    assert_eq!((DONE, FOUND, NAME), (8, Some(State::Done), "done"));
}

#[test]
fn coded_and_named_traits_match_the_enum() {
    fn described<T: Coded>() -> Vec<(i64, &'static str)> {
        assert!(T::ALL.iter().all(|value| T::from_code(value.code()).map(T::name) == Some(value.name())));
        T::ALL.iter().zip(T::NAMES).map(|(value, name)| (value.code(), *name)).collect()
    }
    assert_eq!(described::<State>(), [(-1, "awaiting_approval"), (3, "running"), (8, "done")]);
    assert_eq!(Reason::ALL.map(Reason::name), Reason::NAMES);
}

#[test]
fn only_declared_spellings_are_parsed_as_names() {
    for text in ["Running", "running ", "", "awaiting-approval"] {
        assert!(text.parse::<State>().is_err(), "{text:?}");
    }
    for text in ["keyCompromise", "KEYCOMPROMISE", "key-compromise", "key_compromise"] {
        assert_eq!(text.parse(), Ok(Reason::KeyCompromise), "{text:?}");
        assert_eq!(serde_json::from_str::<Reason>(&format!("{text:?}")).unwrap(), Reason::KeyCompromise);
    }
    assert_eq!("VALUE".parse(), Ok(Kind::Value));
    assert!("val-ue".parse::<Kind>().is_err());
}

#[test]
fn parse_errors_include_the_noun_and_valid_names() {
    let message = |error: coded::UnknownName| error.to_string();
    assert_eq!(
        "paused".parse::<State>().map_err(message),
        Err("unknown job state \"paused\": use awaiting_approval, running or done".to_owned())
    );
    assert_eq!(
        "x".repeat(100).parse::<Kind>().map_err(message),
        Err(format!("unknown credential type {:?}: use value", "x".repeat(40)))
    );
    assert_eq!(
        serde_json::from_str::<State>("\"paused\"").unwrap_err().to_string(),
        "unknown variant `paused`, expected one of `awaiting_approval`, `running`, `done` at line 1 column 8"
    );
    assert!(serde_json::from_str::<State>("3").unwrap_err().to_string().contains("job state"));
}

#[test]
fn display_honours_width_and_alignment() {
    assert_eq!(format!("[{:>6}]", State::Done), "[  done]");
}
