"""krust in Spark. Nothing here is imported early: every planner process and worker pays for it."""
