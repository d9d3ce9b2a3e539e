"""Figures and tables of a results folder: pure functions of its records. Imports results, no other room."""
