"""What a training job is made of, told from its traffic alone: members, pairs, stages, steps; and who holds it up."""
