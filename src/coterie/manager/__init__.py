"""The availability manager (**rsp** 2): what a policy wants, what is seen, and what is done."""
