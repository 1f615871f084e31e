// The theme's own file of this name has 1.5 MB for a dozen icons; book.css draws those.
