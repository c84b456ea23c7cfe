"""Measurements that only we run: speed, scorecard, faults. No part of the wheel."""
