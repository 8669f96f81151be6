"""What schemathesis leaves out when it drives the API."""

import schemathesis


@schemathesis.hook
def before_call(context, case, kwargs):
    # Sparse answers have fewer members than the schema of the whole; that is what `fields` is for.
    if case.query:
        case.query.pop("fields", None)
