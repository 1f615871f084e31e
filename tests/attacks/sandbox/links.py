"""Reach what lies outside through a link in the own folder."""

# %%
os.symlink("CANARY_FILE", "link")
os.symlink("OUT_FOLDER", "folder")
attack(
    lambda: open("link", "r+"),
    lambda: open("link"),
    lambda: open("folder/new", "w"),
    lambda: os.listdir("folder"),
)
