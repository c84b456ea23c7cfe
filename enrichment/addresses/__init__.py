"""What files and DNS know of outside addresses: names, places, networks, applications."""
