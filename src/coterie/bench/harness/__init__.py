"""What every benchmark needs: workers, yardsticks, the machine, figures and how they are shown."""
