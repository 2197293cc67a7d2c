"""Estimators for scikit-learn: `PrivateClassifier` and `PrivateRegressor`, and what around them is refused."""
