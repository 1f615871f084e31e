"""HTML and a spreadsheet's formula in an error and in a result."""

# %%
raise ValueError("</pre><script>alert(2)</script>")


# %% count-blocks
def n_blocks(n):
    return "=cmd <script>alert(3)</script>"
