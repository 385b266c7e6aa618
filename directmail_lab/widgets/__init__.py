"""The sign-in form and the live monitor, and what stands in for them where no widget is shown."""
