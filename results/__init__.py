"""The record of a measurement, how it is kept, and the statistics drawn from it. Imports no other room."""
