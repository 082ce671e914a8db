"""What several screens share: the frame around a page, the sidebar, charts, and the display of running jobs."""
