"""The web page: ``page.build`` makes a Gradio app for a pair, ``server.launch.serve`` serves it.

``static_page`` writes recorded races as a page without a server. It needs neither Gradio nor torch.
"""
