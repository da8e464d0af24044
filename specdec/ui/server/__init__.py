"""The web server around the page: what is checked before Gradio sees a request, and the start and end."""
