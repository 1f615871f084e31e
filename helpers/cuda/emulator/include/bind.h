// Binds C++ functions to Python with the interpreter's own header alone: it compiles in a fraction of pybind11's time.
// Arguments and results are numbers, bool, text (const char*, std::string), std::vector and std::tuple of these and, as
// results, void.
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstdint>
#include <limits>
#include <new>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace workbook_bind {

template <class T>
inline constexpr bool is_text = std::is_same_v<T, std::string> || std::is_same_v<T, const char*>;

// What else passes specialises this, with `take` and `give` as below: tensors.h does.
template <class T>
struct Passing {
    static constexpr bool defined = false;
};

template <class T>
inline constexpr bool can_pass = std::is_arithmetic_v<T> || is_text<T> || Passing<T>::defined;

template <class T>
bool take(PyObject* from, T& to, const char* function, int position);
template <class T>
PyObject* give(const T& value);

// A list or a tuple of Python's; a list as a result.
template <class T>
struct Passing<std::vector<T>> {
    static constexpr bool defined = can_pass<T>;
    static bool take(PyObject* from, std::vector<T>& to, const char* function, int position) {
        if (!PyList_Check(from) && !PyTuple_Check(from)) {
            PyErr_Format(PyExc_TypeError, "%s(): argument %d is of type %s; it takes a list", function, position,
                         Py_TYPE(from)->tp_name);
            return false;
        }
        for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(from); ++i) {
            T one;
            if (!workbook_bind::take(PySequence_Fast_GET_ITEM(from, i), one, function, position)) return false;
            to.push_back(one);
        }
        return true;
    }
    static PyObject* give(const std::vector<T>& value) {
        PyObject* list = PyList_New(0);
        for (const T& one : value) {
            PyObject* given = list ? workbook_bind::give<T>(one) : nullptr;
            if (!given || PyList_Append(list, given) < 0) Py_CLEAR(list);
            Py_XDECREF(given);
        }
        return list;
    }
};

template <class... T>
struct Passing<std::tuple<T...>> {
    static constexpr bool defined = (can_pass<T> && ...);
    static bool take(PyObject*, std::tuple<T...>&, const char* function, int position) {
        PyErr_Format(PyExc_TypeError, "%s(): argument %d is a std::tuple, which can't be passed", function, position);
        return false;
    }
    static PyObject* give(const std::tuple<T...>& value) {
        PyObject* list = std::apply(
            [](const T&... one) {
                PyObject* made = PyList_New(0);
                ([&] {
                    PyObject* given = made ? workbook_bind::give<T>(one) : nullptr;
                    if (!given || PyList_Append(made, given) < 0) Py_CLEAR(made);
                    Py_XDECREF(given);
                }(), ...);
                return made;
            },
            value);
        PyObject* tuple = list ? PyList_AsTuple(list) : nullptr;
        Py_XDECREF(list);
        return tuple;
    }
};

struct PythonRaised {};  // thrown where what Python raises is set

// What Python raises is set when this returns false.
template <class T>
bool take(PyObject* from, T& to, const char* function, int position) {
    static_assert(can_pass<T>, "a bound function takes numbers, bool and text; for more, include <pybind11/pybind11.h>");
    if constexpr (Passing<T>::defined) {
        return Passing<T>::take(from, to, function, position);
    } else if constexpr (std::is_same_v<T, bool>) {
        const int truth = PyObject_IsTrue(from);
        to = truth == 1;
        return truth >= 0;
    } else if constexpr (std::is_integral_v<T>) {
        PyObject* index = PyFloat_Check(from) ? nullptr : PyNumber_Index(from);
        if (!index) {
            PyErr_Clear();
            PyErr_Format(PyExc_TypeError, "%s(): argument %d is of type %s; it takes an integer", function, position,
                         Py_TYPE(from)->tp_name);
            return false;
        }
        bool fits;
        if constexpr (std::is_signed_v<T>) {
            const long long value = PyLong_AsLongLong(index);
            fits = value >= std::numeric_limits<T>::min() && value <= std::numeric_limits<T>::max();
            to = static_cast<T>(value);
        } else {
            const unsigned long long value = PyLong_AsUnsignedLongLong(index);
            fits = value <= std::numeric_limits<T>::max();
            to = static_cast<T>(value);
        }
        if (PyErr_Occurred()) fits = false, PyErr_Clear();
        if (!fits) {
            PyErr_Format(PyExc_TypeError, "%s(): argument %d is %S, which does not fit %s%d bits", function, position,
                         index, std::is_signed_v<T> ? "" : "unsigned ", static_cast<int>(8 * sizeof(T)));
        }
        Py_DECREF(index);
        return fits;
    } else if constexpr (std::is_floating_point_v<T>) {
        to = static_cast<T>(PyFloat_AsDouble(from));
        if (!PyErr_Occurred()) return true;
        PyErr_Clear();
        PyErr_Format(PyExc_TypeError, "%s(): argument %d is of type %s; it takes a number", function, position,
                     Py_TYPE(from)->tp_name);
        return false;
    } else {
        Py_ssize_t length = 0;
        const char* text = PyUnicode_Check(from) ? PyUnicode_AsUTF8AndSize(from, &length) : nullptr;
        if (!text) {
            PyErr_Clear();
            PyErr_Format(PyExc_TypeError, "%s(): argument %d is of type %s; it takes text", function, position,
                         Py_TYPE(from)->tp_name);
            return false;
        }
        if constexpr (std::is_same_v<T, std::string>) to.assign(text, static_cast<size_t>(length));
        else to = text;
        return true;
    }
}

template <class T>
PyObject* give(const T& value) {
    static_assert(can_pass<T>,
                  "a bound function gives numbers, bool, text or nothing; for more, include <pybind11/pybind11.h>");
    if constexpr (Passing<T>::defined) return Passing<T>::give(value);
    else if constexpr (std::is_same_v<T, bool>) return PyBool_FromLong(value);
    else if constexpr (std::is_integral_v<T> && std::is_signed_v<T>) return PyLong_FromLongLong(value);
    else if constexpr (std::is_integral_v<T>) return PyLong_FromUnsignedLongLong(value);
    else if constexpr (std::is_floating_point_v<T>) return PyFloat_FromDouble(static_cast<double>(value));
    else if constexpr (std::is_same_v<T, std::string>)
        return PyUnicode_FromStringAndSize(value.data(), static_cast<Py_ssize_t>(value.size()));
    else if (value) return PyUnicode_FromString(value);
    Py_RETURN_NONE;
}

template <class Result, class... Arguments, size_t... I>
PyObject* call(Result (*function)(Arguments...), const char* name, PyObject* const* given, Py_ssize_t n,
               std::index_sequence<I...>) {
    if (n != static_cast<Py_ssize_t>(sizeof...(Arguments))) {
        PyErr_Format(PyExc_TypeError, "%s() takes %d arguments; it was given %zd", name,
                     static_cast<int>(sizeof...(Arguments)), n);
        return nullptr;
    }
    std::tuple<std::decay_t<Arguments>...> values;
    if (!(take(given[I], std::get<I>(values), name, static_cast<int>(I) + 1) && ...)) return nullptr;
    try {
        if constexpr (std::is_void_v<Result>) {
            function(std::get<I>(values)...);
            Py_RETURN_NONE;
        } else {
            return give<std::decay_t<Result>>(function(std::get<I>(values)...));
        }
    } catch (const PythonRaised&) {
    } catch (const std::bad_alloc& error) {
        PyErr_SetString(PyExc_MemoryError, error.what());
    } catch (const std::out_of_range& error) {
        PyErr_SetString(PyExc_IndexError, error.what());
    } catch (const std::overflow_error& error) {
        PyErr_SetString(PyExc_OverflowError, error.what());
    } catch (const std::logic_error& error) {
        PyErr_SetString(PyExc_ValueError, error.what());
    } catch (const std::exception& error) {
        PyErr_SetString(PyExc_RuntimeError, error.what());
    } catch (...) {
        PyErr_SetString(PyExc_RuntimeError, "an exception that is no std::exception");
    }
    return nullptr;
}

template <class Result, class... Arguments>
PyObject* call(Result (*function)(Arguments...), const char* name, PyObject* const* given, Py_ssize_t n) {
    return call(function, name, given, n, std::index_sequence_for<Arguments...>{});
}

}  // namespace workbook_bind

#define WORKBOOK_BIND(function)                                                                  \
    static PyObject* workbook_bind_##function(PyObject*, PyObject* const* given, Py_ssize_t n) { \
        return workbook_bind::call(&function, #function, given, n);                              \
    }
#define WORKBOOK_METHOD(function) \
    {#function, reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&workbook_bind_##function)), METH_FASTCALL, #function},
